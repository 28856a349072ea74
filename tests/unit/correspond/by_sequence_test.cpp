#include "correspond/by_sequence.h"

#include <doctest/doctest.h>

#include <optional>

#include "base/lookup.h"
#include "merge/values.h"
#include "support/aligned.h"

namespace {

using namespace ttrace;
using Integers = std::vector<std::int64_t>;

constexpr const char* kTokens = "(model):input_ids";

// A call of a model: what it is given, and `x`, of two elements a token, which a model of the tokens alone has computed.
struct Call {
  Shape shape;  // of the tokens
  Integers tokens, mask = {}, positions = {};
  Shape mask_shape = {};
};

Trace trace_of(const std::vector<Call>& calls, bool by_columns = false) {
  Trace trace = test::mesh_trace("", 1);
  for (std::int32_t i = 0; const Call& call : calls) {
    const auto add = [&](const char* name, const Shape& shape, const Integers& values) {
      if (!values.empty()) test::add_int64(trace, 0, test::tensor_id(Kind::kInput, name, i), shape, values);
    };
    add(kTokens, call.shape, call.tokens);
    add("(model):attention_mask", call.mask_shape.empty() ? call.shape : call.mask_shape, call.mask);
    add("(model):position_ids", call.shape, call.positions);
    std::vector<float> values;
    for (const std::int64_t token : call.tokens) values.insert(values.end(), {float(token), float(-token)});
    Shape shape = call.shape;
    if (by_columns) shape = {call.shape[0] * call.shape[1]};
    shape.push_back(2);
    test::add_tensor(trace, 0, test::tensor_id(Kind::kOutput, "x", i), shape, values);
    ++i;
  }
  return trace;
}

struct Mapped {
  Alignment reference, candidate;
  SequenceMapping mapping;

  std::optional<Values> of(const Alignment& alignment) const {
    const LogicalTensor* tensor = find_tensor(alignment, test::tensor_id(Kind::kOutput, "x", 0));
    return tensor == nullptr ? std::nullopt : std::optional(values_of(*tensor));
  }
};

Mapped mapped(const Trace& reference, const Trace& candidate) {
  Mapped both{align(reference, {}, {}), align(candidate, {}, {}), {}};
  const TokenStreams a = token_streams_of(both.reference, "input_ids", "reference");
  const TokenStreams b = token_streams_of(both.candidate, "input_ids", "candidate");
  both.mapping = map_by_sequence(a, b, both.reference, both.candidate);
  return both;
}

Values rows_of(const Integers& tokens) {
  Values values;
  for (const std::int64_t token : tokens) values.insert(values.end(), {double(token), double(-token)});
  return values;
}

const Call kRight = {{2, 3}, {5, 6, 7, 8, 9, 0}, {1, 1, 1, 1, 1, 0}, {0, 1, 2, 0, 1, 0}};

}  // namespace

TEST_SUITE_BEGIN("correspond");

TEST_CASE("rows of the same sequences are held against each other wherever they lie in a batch") {
  const Trace reference = trace_of({kRight});
  const std::vector<Trace> candidates = {
      trace_of({{{2, 3}, {5, 6, 7, 0, 8, 9}, {1, 1, 1, 0, 1, 1}, {0, 1, 2, 0, 0, 1}}}),      // padded on the left
      trace_of({{{1, 5}, {5, 6, 7, 8, 9}, {}, {0, 1, 2, 0, 1}}}),                            // packed
      trace_of({{{1, 5}, {8, 9, 5, 6, 7}}}),                                                 // and nothing says so
      trace_of({{{1, 5}, {5, 6, 7, 8, 9}, {}, {0, 1, 2, 3, 4}}}),                            // or what is wrong
      trace_of({{{1, 2}, {8, 9}}, {{1, 3}, {5, 6, 7}}}),                                     // one a call
      trace_of({{{1, 2}, {5, 6}}, {{1, 1}, {7}, {}, {2}}, {{1, 2}, {8, 9}}}),                // with a cache
      trace_of({{{2, 1}, {8, 5}}, {{2, 2}, {9, 0, 6, 7}, {1, 1, 0, 1, 1, 1}, {}, {2, 3}}}),  // the mask says how long
      trace_of({{{2, 3}, {5, 6, 7, 8, 9, 0}, {1, 1, 1, 1, 1, 0}}}, true),                    // flat
      trace_of({{{3, 3}, {4, 4, 4, 8, 9, 0, 5, 6, 7}, {1, 1, 1, 1, 1, 0, 1, 1, 1}}}),        // beside others
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    CAPTURE(i);
    const Mapped both = mapped(reference, candidates[i]);
    CHECK(both.of(both.reference) == rows_of({5, 6, 7, 8, 9}));
    CHECK(both.of(both.candidate) == rows_of({5, 6, 7, 8, 9}));
    CHECK(both.mapping.partial.empty() == (i + 1 < candidates.size()));
  }
}

TEST_CASE("a beginning is compared, and what is in neither side's sequences is said") {
  const Trace reference = trace_of({kRight}), longer = trace_of({{{1, 4}, {5, 6, 7, 1}}});
  const Mapped both = mapped(reference, longer);
  CHECK(both.of(both.candidate) == rows_of({5, 6, 7}));
  CHECK(both.mapping.partial ==
        "of the reference's 5 tokens 2 are in no sequence of the candidate, and of its 4 tokens 1 are in none of the "
        "reference: they are not compared");
}

TEST_CASE("sequences of which none is the reference's cannot be mapped") {
  const Trace reference = trace_of({kRight}), other = trace_of({{{1, 3}, {9, 8, 7}}});
  CHECK_THROWS_AS(mapped(reference, other), InputError);
}

TEST_CASE("a tensor without a row for each token is compared on neither side, and named") {
  Trace reference = trace_of({kRight}), candidate = trace_of({kRight});
  for (Trace* trace : {&reference, &candidate}) {
    test::add_tensor(*trace, 0, test::tensor_id(Kind::kOutput, "weights", 0), {2, 4, 3, 3});
    test::add_tensor(*trace, 0, test::tensor_id(Kind::kOutput, "pooled", 0), {2, 7});
  }
  const Mapped both = mapped(reference, candidate);
  CHECK(test::names_in(both.candidate) == std::vector<std::string>{kTokens, "(model):position_ids", "x"});
  CHECK(both.mapping.notes.back().find("3 names, as (model):attention_mask input, pooled output, weights output") !=
        std::string::npos);
}

TEST_CASE("a tensor with a row for each token on one side alone is no reason to call the runs the same") {
  Trace reference = trace_of({kRight}), candidate = trace_of({kRight});
  test::add_tensor(reference, 0, test::tensor_id(Kind::kOutput, "logits", 0), {2, 3, 7});
  test::add_tensor(candidate, 0, test::tensor_id(Kind::kOutput, "logits", 0), {2, 1, 7});
  CHECK_THROWS_AS(mapped(reference, candidate), InputError);
}

TEST_SUITE_END();
