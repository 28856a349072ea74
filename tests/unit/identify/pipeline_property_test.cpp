// Random pipelines: whatever the division, dealing out a model's layers and putting them together is the identity, and
// a program that divides otherwise is found.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

using Random = std::mt19937_64;

std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

struct Case {
  std::int32_t stages = 1, chunks = 1, copies = 1;  // copies: ranks of an axis that replicates
  std::vector<std::int64_t> counts;                 // layers by chunk, then stage
  std::string keys;                                 // what declares them
  bool tied = false;

  std::int64_t total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  std::string text() const {
    return fmt::format("parallelism:\n  pipeline: {{layers: layers{}}}\n{}", keys,
                       tied ? "  tied: {head.weight: embedding.weight}\n" : "");
  }
};

// The four ways to say how many layers the stages hold, each worked out from its own numbers.
Case draw(Random& random) {
  Case c;
  c.stages = static_cast<std::int32_t>(pick(random, 1, 4));
  c.chunks = static_cast<std::int32_t>(pick(random, c.stages == 1 ? 2 : 1, 3));
  c.copies = static_cast<std::int32_t>(pick(random, 1, 2));
  c.tied = pick(random, 0, 1) == 0;
  const auto parts = static_cast<std::size_t>(c.stages * c.chunks);
  const std::int64_t share = pick(random, 1, 3);
  c.counts.assign(parts, share);
  const std::int64_t way = pick(random, 0, 3);
  if (way == 1) {
    for (std::int64_t& count : c.counts) count = pick(random, 0, 3);
    c.keys = fmt::format(", per_stage: [{}]", fmt::join(c.counts, ", "));
  } else if (way == 2) {
    const bool embedding = pick(random, 0, 1) == 0;
    const bool head = !embedding || pick(random, 0, 1) == 0;
    c.counts.front() -= embedding ? 1 : 0;
    c.counts.back() -= head ? 1 : 0;
    c.keys = fmt::format(", embedding: {}, head: {}", embedding, head);
  } else if (way == 3 && c.stages > 1) {
    const std::int64_t first = pick(random, 0, 4);
    for (std::size_t chunk = 0; chunk < parts; chunk += static_cast<std::size_t>(c.stages)) c.counts[chunk] = first;
    c.keys = fmt::format(", first: {}", first * c.chunks);
  }
  return c;
}

TensorId chunk_id(Kind kind, const std::string& name, std::int32_t chunk) {
  TensorId id = tensor_id(kind, name);
  id.chunk = chunk;
  return id;
}

Trace reference_of(const Case& c) {
  Trace trace = mesh_trace("", 1);
  for (std::int64_t i = 0; i < c.total(); ++i) {
    add_tensor(trace, 0, tensor_id(Kind::kParam, fmt::format("layers.{}", i)), {1}, {static_cast<float>(i + 1)});
  }
  for (const Kind kind : {Kind::kMainGrad, Kind::kParamGrad}) {
    add_tensor(trace, 0, tensor_id(kind, "embedding.weight"), {1}, {7});
    if (!c.tied) add_tensor(trace, 0, tensor_id(kind, "head.weight"), {1}, {7});
  }
  return trace;
}

// A program that runs `counts` layers on each virtual stage. Embedding and head are on the ends.
Trace candidate_of(const Case& c, const std::vector<std::int64_t>& counts) {
  Trace trace = mesh_trace(fmt::format("tp={},pp={}", c.copies, c.stages), c.stages * c.copies);
  std::int64_t layer = 0;
  for (std::int32_t part = 0; part < c.stages * c.chunks; ++part) {
    const std::int32_t chunk = part / c.stages;
    for (std::int32_t copy = 0; copy < c.copies; ++copy) {
      const auto rank = static_cast<std::size_t>(copy + c.copies * (part % c.stages));
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(part)]; ++i) {
        add_tensor(trace, rank, chunk_id(Kind::kParam, fmt::format("layers.{}", i), chunk), {1},
                   {static_cast<float>(layer + i + 1)});
      }
      // Each chunk is there, even one without layers.
      add_tensor(trace, rank, chunk_id(Kind::kParam, fmt::format("of_chunk_{}", part), chunk), {1}, {1});
      if (part > 0 && part + 1 < c.stages * c.chunks) continue;
      const std::string name = part == 0 ? "embedding.weight" : "head.weight";
      add_tensor(trace, rank, chunk_id(Kind::kMainGrad, name, chunk), {1}, {7});
      const float term = !c.tied ? 7.0F : part == 0 ? 3.0F : 4.0F;
      add_tensor(trace, rank, chunk_id(Kind::kParamGrad, name, chunk), {1}, {term});
    }
    layer += counts[static_cast<std::size_t>(part)];
  }
  return trace;
}

// What a check says of the tensors that both have, or should have.
std::vector<std::string> wrong(const Case& c, const Trace& candidate) {
  std::vector<std::string> lines = findings_in(checked(reference_of(c), candidate, c.text()));
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("of_chunk_"); });
  return lines;
}

constexpr int kCases = 1000;

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("dealing out layers to any pipeline and putting them together is the identity") {
  Random random(11);
  int uneven = 0, interleaved = 0, tied = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    CAPTURE(c.text());
    REQUIRE(wrong(c, candidate_of(c, c.counts)).empty());
    uneven += c.keys.empty() ? 0 : 1;
    interleaved += c.chunks > 1 ? 1 : 0;
    tied += c.tied ? 1 : 0;
  }
  for (const int count : {uneven, interleaved, tied}) CHECK(count > kCases / 4);
}

TEST_CASE("a program that divides the layers otherwise than declared is found") {
  Random random(12);
  for (int i = 0; i < kCases; ++i) {
    const Case c = draw(random);
    std::vector<std::int64_t> counts = c.counts;
    const auto from = static_cast<std::size_t>(pick(random, 0, static_cast<std::int64_t>(counts.size()) - 1));
    const auto to = (from + static_cast<std::size_t>(pick(random, 1, static_cast<std::int64_t>(counts.size()) - 1))) %
                    counts.size();
    if (counts[from] == 0) continue;
    CAPTURE(c.text());
    --counts[from];
    REQUIRE_FALSE(wrong(c, candidate_of(c, counts)).empty());  // dropped
    // On another stage. Where it was alone, and is now the last of the stage before, all is computed as it should be.
    const auto at = [&](std::size_t part) { return counts.begin() + static_cast<std::ptrdiff_t>(part); };
    const bool harmless = to < from && std::all_of(at(to + 1), at(from + 1), [](auto count) { return count == 0; });
    ++counts[to];
    REQUIRE(wrong(c, candidate_of(c, counts)).empty() == harmless);
  }
}

TEST_CASE("a tied parameter whose copies differ, or whose gradient lacks a term, is found") {
  Random random(13);
  for (int i = 0; i < kCases / 4; ++i) {
    Case c = draw(random);
    c.tied = true;
    Trace trace = candidate_of(c, c.counts);
    const Kind kind = pick(random, 0, 1) == 0 ? Kind::kMainGrad : Kind::kParamGrad;
    // On the last rank, whose last chunk has the head.
    RankTrace& rank = trace.ranks.back();
    const auto entry = std::find_if(rank.entries.begin(), rank.entries.end(), [&](const Entry& candidate) {
      return candidate.id.kind == kind && candidate.id.name == "head.weight";
    });
    REQUIRE(entry != rank.entries.end());
    const float other = 11;
    auto& bytes = std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(rank.file))->bytes;
    std::memcpy(bytes.data() + entry->offset, &other, sizeof other);
    entry->checksum ^= 1;
    const bool differs = kind == Kind::kMainGrad || c.copies > 1;
    REQUIRE(wrong(c, trace) ==
            std::vector<std::string>{fmt::format("embedding.weight {}: {}", name_of(kind),
                                                 differs ? "replicas-disagree" : "exceeds-tolerance")});
  }
}

TEST_SUITE_END();
