// What comes after a draw of random numbers need not be the reference's, unless the same were to be drawn.
#include "diagnose/own_numbers.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/random_draws.h"
#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const TensorId kDrawnOut = tensor_id(Kind::kOutput, "block", 0);
const TensorId kGiven = tensor_id(Kind::kInput, "block.down", 0);
const std::vector<float> kDrawnRight = {1, 2, 3, 4, 5, 6, 7, 8};
const std::vector<float> kDrawnOther = {1, 0, 3, 0, 5, 0, 7, 0};

// What each rank holds of a tensor, and the state of its generators before it drew; nothing where it drew nothing.
struct DrawingRank {
  std::vector<float> values;
  std::optional<std::uint64_t> state;
};

Trace drawn_trace(const std::string& mesh, const TensorId& id, const std::vector<DrawingRank>& processes) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(processes.size()));
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const auto& [values, state] = processes[rank];
    add_tensor(trace, rank, id, {static_cast<std::int64_t>(values.size())}, values);
    trace.ranks[rank].entries.back().module_class = std::string("m.Block");
    std::map<TensorId, std::uint64_t> states;
    if (state) states.emplace(id, *state);
    trace.ranks[rank].draws = std::make_shared<RandomDraws>(std::move(states), false);
  }
  return trace;
}

Report with_draws(const Trace& one, const Trace& two, const std::string& text = "") {
  Report report = checked(one, two, text);
  const Alignment reference = align(one, annotations(text), {});
  const Alignment candidate = align(two, annotations(text), layout_of(reference));
  Evidence evidence{reference, candidate, two.mesh, {}};
  evidence.reference_trace = &one;
  evidence.candidate_trace = &two;
  add_root_causes(report, evidence);
  return report;
}

std::string drawn_cause(const Report& report) {
  REQUIRE(report.explanation.roots.size() == 1);
  const RootCause& root = report.explanation.roots[0];
  return root.diagnosis == Cause::kDrawnOtherwise ? root.sentence : "";
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("what is drawn from another state is a question, in a module's own output and in what it hands on") {
  for (const TensorId& id : {kDrawnOut, kGiven}) {
    const Report report = with_draws(drawn_trace("", id, {{kDrawnRight, 7}}), drawn_trace("", id, {{kDrawnOther, 8}}));
    CHECK(report.verdict() == RunVerdict::kCouldNotLook);
    REQUIRE(report.explanation.questions.size() == 1);
    CHECK(has(report.explanation.questions[0].sentence, "draws random numbers"));
    CHECK(has(report.explanation.questions[0].sentence, "the state of the generators is another before it"));
  }
}

TEST_CASE("what is drawn from the reference's state, for the whole tensor, is to be the reference's") {
  CHECK(with_draws(drawn_trace("", kDrawnOut, {{kDrawnRight, 7}}), drawn_trace("", kDrawnOut, {{kDrawnOther, 7}}))
            .verdict() == RunVerdict::kDifferent);
}

TEST_CASE("a rank's part is drawn otherwise, even from the reference's state") {
  const Trace two = drawn_trace("dp=2", kDrawnOut, {{{1, 2, 3, 4}, 7}, {{5, 0, 7, 0}, 7}});
  const Report report = with_draws(drawn_trace("", kDrawnOut, {{kDrawnRight, 7}}), two, "block: {output: {dp_dim: 0}}");
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
}

TEST_CASE("what only one of the runs draws is wrong, and that is why") {
  const Trace drawn = drawn_trace("", kDrawnOut, {{kDrawnOther, 7}}),
              plain = drawn_trace("", kDrawnOut, {{kDrawnRight, {}}});
  const Report more = with_draws(plain, drawn), less = with_draws(drawn, plain);
  CHECK(more.verdict() == RunVerdict::kDifferent);
  CHECK(has(drawn_cause(more), "random numbers are drawn before it, and in the reference none"));
  CHECK(less.verdict() == RunVerdict::kDifferent);
  CHECK(has(drawn_cause(less), "in the reference random numbers are drawn before it, and here none"));
}

TEST_CASE("copies that ranks draw from other states are wrong, and that is why") {
  const Trace two = drawn_trace("tp=2", kDrawnOut, {{kDrawnRight, 7}, {kDrawnOther, 8}});
  const Report report =
      with_draws(drawn_trace("", kDrawnOut, {{kDrawnRight, 7}}), two, "block: {output: {tp: replicate}}");
  CHECK(report.verdict() == RunVerdict::kDifferent);
  CHECK(has(drawn_cause(report), "the ranks whose copies must be equal draw other random numbers"));
}

TEST_CASE("a recomputation that draws other numbers than its forward is known") {
  TensorId again = kDrawnOut;
  again.pass = Pass::kRecompute;
  const Trace one = drawn_trace("", kDrawnOut, {{kDrawnRight, 7}});
  Trace two = drawn_trace("", kDrawnOut, {{kDrawnRight, 7}});
  add_tensor(two, 0, again, {8}, kDrawnOther);
  const Alignment reference = align(one, annotations(""), {});
  for (const std::uint64_t state : {7, 8}) {
    two.ranks[0].draws =
        std::make_shared<RandomDraws>(std::map<TensorId, std::uint64_t>{{kDrawnOut, 7}, {again, state}}, false);
    const Alignment candidate = align(two, annotations(""), layout_of(reference));
    Evidence evidence{reference, candidate, two.mesh, {}};
    evidence.reference_trace = &one;
    evidence.candidate_trace = &two;
    CHECK(is_redrawn(again, evidence) == (state == 8));
    CHECK(!is_redrawn(kDrawnOut, evidence));
  }
}

TEST_CASE("gradients that a step takes are to be equal on the ranks, whatever was drawn before") {
  const TensorId gradient = tensor_id(Kind::kMainGrad, "block.weight");
  const auto with_gradient = [&](Trace trace, const std::vector<float>& by_rank) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) add_tensor(trace, rank, gradient, {1}, {by_rank[rank]});
    return trace;
  };
  const std::string rule = "block: {output: {dp_dim: 0}}";
  const Trace one = with_gradient(drawn_trace("", kDrawnOut, {{kDrawnRight, 7}}), {3});
  const Trace two = drawn_trace("dp=2", kDrawnOut, {{{1, 2, 3, 4}, 7}, {{5, 0, 7, 0}, 7}});
  CHECK(with_draws(one, with_gradient(two, {4, 4}), rule).verdict() == RunVerdict::kCouldNotLook);
  CHECK(with_draws(one, with_gradient(two, {4, 5}), rule).verdict() == RunVerdict::kDifferent);
}

TEST_SUITE_END();
