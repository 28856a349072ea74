// A trace stores a tensor once that was recorded twice.
#include "compare/repeats.h"

#include <doctest/doctest.h>

#include <map>

#include "align/shard_mapping.h"
#include "base/annotation.h"
#include "support/trace_builder.h"

namespace {

using namespace ttrace;
using namespace ttrace::test;

constexpr std::int64_t kHigh = 40, kWide = 50;

ElementValue counting_from(double first) {
  return [first](std::int32_t, std::int64_t i) { return first + static_cast<double>(i % 1000); };
}

// A trace of three tensors; those that begin with the same number have the same bytes.
Trace trace_of(TraceBuilder& builder, double a, double b, double c) {
  builder.tensor("a", Kind::kOutput, {kHigh, kWide}, counting_from(a));
  builder.tensor("b", Kind::kOutput, {kHigh, kWide}, counting_from(b));
  builder.tensor("c", Kind::kOutput, {kWide, kHigh}, counting_from(c));
  return builder.read();
}

struct Aligned {
  TraceBuilder builder;
  Trace trace;
  Alignment alignment;
  Aligned(double a, double b, double c)
      : trace(trace_of(builder, a, b, c)), alignment(align(trace, Annotations{}, ModelLayout{})) {}
};

std::vector<TensorPair> pairs_of(const Aligned& reference, const Aligned& candidate) {
  std::vector<TensorPair> pairs;
  for (const auto& [id, tensor] : reference.alignment.tensors) {
    pairs.push_back({&tensor, &candidate.alignment.tensors.at(id)});
  }
  return pairs;
}

std::vector<std::size_t> first_in(const std::vector<TensorPair>& pairs) {
  return first_of_each(pairs, [](std::size_t count, const auto& body) {
    for (std::size_t i = 0; i < count; ++i) body(i);
  });
}

}  // namespace

TEST_SUITE("compare") {
  TEST_CASE("a pair is measured once only where both sides share their bytes and the shape is the same") {
    const Aligned reference(1, 1, 1);
    const std::vector<Entry>& entries = reference.trace.ranks[0].entries;
    REQUIRE(entries[0].offset == entries[1].offset);
    REQUIRE(entries[0].offset == entries[2].offset);
    CHECK(first_in(pairs_of(reference, Aligned(2, 2, 2))) == std::vector<std::size_t>{0, 0, 2});
    CHECK(first_in(pairs_of(reference, Aligned(2, 3, 2))) == std::vector<std::size_t>{0, 1, 2});
    CHECK(first_in(pairs_of(Aligned(1, 4, 1), Aligned(2, 2, 2))) == std::vector<std::size_t>{0, 1, 2});
  }

  TEST_CASE("where a reference shares no bytes, no candidate is asked for its pieces, of which there may be many") {
    const Aligned apart(1, 4, 7), shared(1, 1, 7), candidate(2, 2, 2);
    const auto times_asked = [&](const Aligned& reference) {
      int asked = 0;
      std::map<TensorId, LogicalTensor> tensors = candidate.alignment.tensors;
      std::vector<TensorPair> pairs;
      for (auto& [id, tensor] : tensors) {
        tensor.pieces = [&asked, pieces = tensor.pieces] { return ++asked, pieces(); };
        pairs.push_back({&reference.alignment.tensors.at(id), &tensor});
      }
      first_in(pairs);
      return asked;
    };
    CHECK(times_asked(apart) == 0);
    CHECK(times_asked(shared) == 4);  // two of them, to find a repeat, and once more to be sure of it
  }

  TEST_CASE("what was measured once holds for each tensor with these bytes, and for no other") {
    const Aligned reference(1, 1, 1), candidate(2, 2, 2), other(2, 3, 2);
    const std::vector<Difference> same = compare(pairs_of(reference, candidate), {});
    REQUIRE(same.size() == 3);
    CHECK(same[1].difference_square == kHigh * kWide);
    CHECK(same[1].difference_square == same[0].difference_square);
    CHECK(same[1].elements == kHigh * kWide);
    const std::vector<Difference> wrong = compare(pairs_of(reference, other), {});
    CHECK(wrong[0].difference_square == kHigh * kWide);
    CHECK(wrong[1].difference_square == 4 * kHigh * kWide);
  }
}
