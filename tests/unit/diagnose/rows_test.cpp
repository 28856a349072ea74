// Tensors of routed tokens, which the ranks hold in orders of their own.
#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr const char* kRowRules =
    "experts.*:0:\n  input: {rows: {ids: 'experts.*:1', of: mlp, logits: mlp.router}}\n"
    "experts.*:1:\n  input: local\n"
    "mlp.router:\n  output: {}\n"
    "parallelism: {experts: {axis: ep, layers: mlp.experts}}\n";
constexpr std::int64_t kTokenCount = 12, kHidden = 16;

using TokenOrder = std::vector<std::size_t>;

std::vector<float> hidden_of(std::size_t token) {
  std::mt19937_64 random(token + 1);
  std::vector<float> hidden;
  for (std::int64_t i = 0; i < kHidden; ++i) hidden.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
  return hidden;
}

// The expert is given the tokens `ids`, in this order, with the hidden states of `values`.
void add_expert(Trace& trace, std::size_t rank, int expert, const TokenOrder& ids, const TokenOrder& values) {
  const std::string name = "mlp.experts." + std::to_string(expert);
  const auto rows = static_cast<std::int64_t>(ids.size());
  std::vector<float> hidden;
  std::vector<std::int64_t> identities;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> row = hidden_of(values[i]);
    hidden.insert(hidden.end(), row.begin(), row.end());
    identities.insert(identities.end(), {0, static_cast<std::int64_t>(ids[i])});
  }
  std::vector<float> bits(identities.size() * 2);
  std::memcpy(bits.data(), identities.data(), identities.size() * sizeof(std::int64_t));
  add_tensor(trace, rank, tensor_id(Kind::kInput, name + ":0", 0), {rows, kHidden}, hidden);
  add_tensor(trace, rank, tensor_id(Kind::kInput, name + ":1", 0), {static_cast<std::int64_t>(bits.size())}, bits);
  trace.ranks[rank].entries.back().dtype = Dtype::kInt64;
  trace.ranks[rank].entries.back().shape = {rows, 2};
}

// The first of two experts is given the even tokens, the second the odd ones.
Trace routed_trace(const std::string& mesh, std::int32_t ranks, const TokenOrder& first, const TokenOrder& values) {
  Trace trace = mesh_trace(mesh, ranks);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    std::vector<float> hidden;
    for (std::size_t token = 0; token < std::size_t{kTokenCount}; ++token) {
      const std::vector<float> row = hidden_of(token);
      hidden.insert(hidden.end(), row.begin(), row.end());
    }
    add_tensor(trace, rank, tensor_id(Kind::kInput, "mlp", 0), {kTokenCount, 1, kHidden}, hidden);
    std::vector<float> logits;
    for (std::size_t token = 0; token < kTokenCount; ++token) {
      logits.insert(logits.end(), {token % 2 == 0 ? 1.0F : 0.0F, token % 2 == 0 ? 0.0F : 1.0F});
    }
    add_tensor(trace, rank, tensor_id(Kind::kOutput, "mlp.router", 0), {kTokenCount, 2}, logits);
  }
  add_expert(trace, 0, 0, first, values);
  const TokenOrder odd = {1, 3, 5, 7, 9, 11};
  add_expert(trace, static_cast<std::size_t>(ranks) - 1, ranks == 1 ? 1 : 0, odd, odd);
  return trace;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("an expert's tokens are diagnosed in the order of their identities, whatever that of the ranks is") {
  const TokenOrder even = {0, 2, 4, 6, 8, 10};
  const Trace one = routed_trace("", 1, even, even);
  const Alignment reference = align(one, annotations(kRowRules), {});
  // The tokens come in another order; tokens 4 and 8 have token 10's hidden state.
  const Trace two = routed_trace("ep=2", 2, {10, 8, 6, 4, 2, 0}, {10, 10, 6, 10, 2, 0});
  const Alignment candidate = align(two, annotations(kRowRules), layout_of(reference));
  const Matching matching = match(reference, candidate);
  Report report = judge_all(reference, matching, compare(matching.pairs, {1, {}}), nullptr);
  CHECK(findings_in(report) == std::vector<std::string>{"mlp.experts.0:0 input: exceeds-tolerance"});
  const Annotations rules = annotations(kRowRules);
  add_root_causes(report, {reference, candidate, two.mesh, rules.tied, false});
  REQUIRE(report.explanation.roots.size() == 1);
  CHECK(has(report.explanation.roots[0].sentence, "2 of 6 rows hold the value of row 5; the rest is right"));
}
