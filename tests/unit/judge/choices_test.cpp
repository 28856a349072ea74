// Choices of experts that a program recorded as numbers, [tokens, slots], and what has a number for each of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "align/token_rows.h"
#include "merge/values.h"
#include "support/aligned.h"

using namespace ttrace;

namespace {

constexpr std::int64_t kTokenCount = 32, kChoosable = 8, kSlotCount = 2;

// A router that returns logits, weights and choices of its tokens, as [batch, sequence, ..], the experts that take the
// last two, and what their module takes and returns, one number a token.
struct RecordedRouting {
  std::vector<float> logits;
  std::vector<std::int64_t> choices;
  std::vector<float> weights, taken, returned;
  Shape tokens = {kTokenCount};

  RecordedRouting()
      : logits(kTokenCount * kChoosable),
        choices(kTokenCount * kSlotCount),
        weights(kTokenCount * kSlotCount),
        taken(kTokenCount, 1),
        returned(kTokenCount, 2) {
    std::uint32_t state = 1;
    for (float& logit : logits) {
      state = state * 1664525 + 1013904223;
      logit = static_cast<float>(state >> 8) / (1 << 24);
    }
    for (std::int64_t token = 0; token < kTokenCount; ++token) choose(token);
  }

  float& logit(std::int64_t token, std::int64_t expert) {
    return logits[static_cast<std::size_t>(token * kChoosable + expert)];
  }
  std::int64_t& choice(std::int64_t token, std::int64_t slot) {
    return choices[static_cast<std::size_t>(token * kSlotCount + slot)];
  }
  float& weight(std::int64_t token, std::int64_t slot) {
    return weights[static_cast<std::size_t>(token * kSlotCount + slot)];
  }

  // Sends a token to the experts of its highest logits, the highest first.
  void choose(std::int64_t token) {
    std::vector<std::int64_t> order(kChoosable);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return logit(token, a) > logit(token, b); });
    for (std::int64_t slot = 0; slot < kSlotCount; ++slot) send(token, slot, order[static_cast<std::size_t>(slot)]);
  }

  void send(std::int64_t token, std::int64_t slot, std::int64_t expert) {
    choice(token, slot) = expert;
    weight(token, slot) = logit(token, expert);
  }

  // Lets the second best of a token's experts tie with another one, and sends it to the other.
  RecordedRouting send_tied(std::int64_t token) {
    logit(token, 3) = 2;
    logit(token, 6) = logit(token, 1) = 1.5f;
    choose(token);
    RecordedRouting other = *this;
    other.send(token, 1, choice(token, 1) == 1 ? 6 : 1);
    return other;
  }

  Trace trace() const {
    Trace trace = test::mesh_trace("", 1);
    const auto shape = [&](std::int64_t last) {
      Shape result = tokens;
      result.push_back(last);
      return result;
    };
    const auto add = [&](Kind kind, const std::string& name, std::int64_t last, const std::vector<float>& values) {
      test::add_tensor(trace, 0, test::tensor_id(kind, name, 0), shape(last), values);
    };
    add(Kind::kInput, "mlp", 1, taken);
    add(Kind::kOutput, "mlp.gate:0", kChoosable, logits);
    add(Kind::kOutput, "mlp.gate:1", kSlotCount, weights);
    test::add_int64(trace, 0, test::tensor_id(Kind::kOutput, "mlp.gate:2", 0), shape(kSlotCount), choices);
    test::add_int64(trace, 0, test::tensor_id(Kind::kInput, "mlp.experts:1", 0), shape(kSlotCount), choices);
    add(Kind::kInput, "mlp.experts:2", kSlotCount, weights);
    add(Kind::kOutput, "mlp", 1, returned);
    add(Kind::kGradInput, "mlp.experts:2", kSlotCount, weights);
    add(Kind::kGradInput, "mlp", 1, taken);
    return trace;
  }
};

Report judged_routing(const RecordedRouting& reference, const RecordedRouting& candidate) {
  const Trace a_trace = reference.trace(), b_trace = candidate.trace();
  const Alignment a = align(a_trace, {}, {});
  const Alignment b = align(b_trace, {}, layout_of(a));
  const Matching matching = match(a, b);
  ToleranceFile file;
  for (const auto& [id, tensor] : a.tensors) file.tensors[{id.kind, id.name}].allowed = 0.01;
  return judge_all(a, matching, compare(matching.pairs, {1, {}, false}), &file);
}

using Findings = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("where experts nearly tie, a token may go to either, and its weights are not compared") {
  RecordedRouting reference;
  RecordedRouting candidate = reference.send_tied(5);
  candidate.weight(5, 1) = 1;  // a value of its own
  const Report report = judged_routing(reference, candidate);
  CHECK(test::findings_in(report).empty());
  CHECK(report.same());
  REQUIRE(!report.notes.empty());
  CHECK(report.notes[0].find("1 tokens: token 5 of mlp.gate:0 output") != std::string::npos);
}

TEST_CASE("the slots of a token's experts are in any order, and so are their weights") {
  const RecordedRouting reference;
  RecordedRouting candidate = reference;
  for (const std::int64_t token : {0, 1, 7, 31}) {
    std::swap(candidate.choice(token, 0), candidate.choice(token, 1));
    std::swap(candidate.weight(token, 0), candidate.weight(token, 1));
  }
  CHECK(judged_routing(reference, candidate).same());
}

TEST_CASE("weights that do not follow their experts are a failure") {
  const RecordedRouting reference;
  RecordedRouting candidate = reference;
  for (std::int64_t token = 0; token < kTokenCount; ++token) {
    std::swap(candidate.choice(token, 0), candidate.choice(token, 1));
  }
  CHECK(test::findings_in(judged_routing(reference, candidate)) ==
        Findings{"mlp.gate:1 output: exceeds-tolerance", "mlp.experts:2 input: exceeds-tolerance",
                 "mlp.experts:2 grad_input: exceeds-tolerance"});
}

TEST_CASE("one token at an expert of a lower score is a failure") {
  RecordedRouting reference;
  reference.logit(5, 2) = -1;
  RecordedRouting candidate = reference;
  candidate.send(5, 1, 2);
  const Report report = judged_routing(reference, candidate);
  CHECK(test::findings_in(report) == Findings{"mlp.gate:0 output: routing-differs"});
  CHECK(report.findings[0].message.find("token 5 to 2 instead of") != std::string::npos);
  candidate = reference;
  candidate.choice(5, 1) = candidate.choice(5, 0);  // one expert twice
  CHECK(test::findings_in(judged_routing(reference, candidate)) == Findings{"mlp.gate:0 output: routing-differs"});
}

TEST_CASE("numbers that no scores explain are compared as they are") {
  RecordedRouting reference;
  for (float& logit : reference.logits) logit = -logit;  // the choices are those of the lowest
  RecordedRouting candidate = reference;
  std::swap(candidate.choice(0, 0), candidate.choice(0, 1));
  CHECK(test::findings_in(judged_routing(reference, candidate)) ==
        Findings{"mlp.gate:2 output: integer-differs", "mlp.experts:1 input: integer-differs"});
}

TEST_CASE("scores that do not differ explain nothing") {
  RecordedRouting reference;
  for (float& logit : reference.logits) logit = 1;
  RecordedRouting candidate = reference;
  candidate.choice(0, 0) = 7;
  CHECK(test::findings_in(judged_routing(reference, candidate)) ==
        Findings{"mlp.gate:2 output: integer-differs", "mlp.experts:1 input: integer-differs"});
}

TEST_CASE("what is computed from a re-routed token is left out, and from no other") {
  RecordedRouting reference;
  reference.tokens = {4, kTokenCount / 4};
  RecordedRouting candidate = reference.send_tied(9);
  candidate.returned[9] = 100;
  CHECK(judged_routing(reference, candidate).same());
  candidate.returned[17] = 10;
  const Report report = judged_routing(reference, candidate);
  CHECK(test::findings_in(report) == Findings{"mlp output: exceeds-tolerance"});
  CHECK(report.findings[0].message.find("worst at [2, 1, 0]: reference 2, candidate 10, on rank 0") !=
        std::string::npos);
}

TEST_CASE("what a token was before it was re-routed is compared") {
  RecordedRouting reference;
  RecordedRouting candidate = reference.send_tied(5);
  candidate.taken[5] = 100;
  // The same, as a gradient, comes after the choice.
  CHECK(test::findings_in(judged_routing(reference, candidate)) == Findings{"mlp input: exceeds-tolerance"});
}

TEST_CASE("tokens are counted over batch and sequence") {
  RecordedRouting reference;
  reference.tokens = {4, kTokenCount / 4};
  RecordedRouting candidate = reference.send_tied(9);
  std::swap(candidate.choice(8, 0), candidate.choice(8, 1));
  std::swap(candidate.weight(8, 0), candidate.weight(8, 1));
  CHECK(judged_routing(reference, candidate).same());
}

TEST_CASE("slots move with their tokens wherever the shards of a tensor end") {
  // [2, 3, 2]: the ranks of dp have one of the batch each, those of tp one of the slots.
  Trace trace = test::mesh_trace("tp=2,dp=2", 4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    std::vector<float> values;
    for (std::size_t token = 0; token < 3; ++token) {
      values.push_back(static_cast<float>(10 * (rank / 2 * 3 + token) + rank % 2));
    }
    test::add_tensor(trace, rank, test::tensor_id(Kind::kOutput, "weights", 0), {1, 3, 1}, values);
  }
  const Alignment alignment = align(trace, test::annotations("weights:\n  output: {dp_dim: 0, tp_dim: 2}\n"), {});
  REQUIRE(alignment.tensors.size() == 1);
  const LogicalTensor& tensor = alignment.tensors.begin()->second;
  REQUIRE(tensor.shape == Shape{2, 3, 2});
  using Moved = std::map<std::int64_t, std::vector<std::int64_t>>;
  const RowChange change{std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{0, 4}),
                         std::make_shared<const Moved>(Moved{{2, {1, 0}}, {5, {1, 0}}})};
  const LogicalTensor changed = with_changed_rows(tensor, change);
  CHECK(changed.shape == Shape{4, 2});
  CHECK(values_of(changed) == Values{10, 11, 21, 20, 30, 31, 51, 50});
  // The statistics that have a tolerance do not depend on how many tokens were left out.
  CHECK(stored_tensor(changed).elements == stored_tensor(tensor).elements);
  CHECK(stored_tensor(changed).rows == stored_tensor(tensor).rows);
}
