// What ranks do to parameters after their step shows in gradients and updates that differ between them.
#include "diagnose/changed_after.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "diagnose/root_causes.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const std::string kWeight = "fc.weight";

// What a rank has of one weight's step.
struct Step {
  float gradient = 2, update = -2;
  bool changed_after = false;
  bool lacks_further = false;
};

Trace run_of(const std::string& mesh, const std::vector<Step>& steps) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(steps.size()));
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    const Step& step = steps[rank];
    add_tensor(trace, rank, tensor_id(Kind::kParam, kWeight), {2}, {1, 5});
    add_tensor(trace, rank, tensor_id(Kind::kMainGrad, kWeight), {2}, {step.gradient, 3});
    add_tensor(trace, rank, tensor_id(Kind::kParamDelta, kWeight), {2}, {step.update, -3});
    OptimizerStep& said = trace.ranks[rank].optimizer_steps.emplace_back();
    said.optimizer = "torch.optim.sgd.SGD";
    said.parameters = {kWeight};
    said.changed_after = step.changed_after;
    trace.ranks[rank].lacks_further = step.lacks_further;
  }
  return trace;
}

Report judged_beside_one(const std::vector<Step>& steps) {
  const Trace one = run_of("", {{}}), two = run_of("dp=" + std::to_string(steps.size()), steps);
  Report report = checked(one, two, "");
  const Alignment reference = align(one, {}, {}), candidate = align(two, {}, layout_of(reference));
  Evidence evidence{reference, candidate, two.mesh, {}};
  evidence.reference_trace = &one;
  evidence.candidate_trace = &two;
  add_root_causes(report, evidence);
  return report;
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("own gradients of ranks that average parameters after the step are a question, with the line to write") {
  const Report report = judged_beside_one({{1, -2, true}, {3, -2, true}});
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "\"**\": {main_grad: {dp: mean}}"));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].reason == Reason::kChangedAfter);
}

TEST_CASE("gradients that were never averaged are wrong where no rank changes what its step has made") {
  for (const bool second : {false, true}) {  // one of the ranks does: so does none that averages
    CAPTURE(second);
    const Report report = judged_beside_one({{1, -2, false}, {3, -2, second}});
    CHECK(report.verdict() == RunVerdict::kDifferent);
    CHECK(report.first_wrong()->id.kind == Kind::kMainGrad);
  }
}

TEST_CASE("gradients that were never averaged are wrong where the updates are, too") {
  const Report report = judged_beside_one({{1, -1, true}, {3, -3, true}});
  CHECK(report.verdict() == RunVerdict::kDifferent);
  CHECK(report.first_wrong()->id.kind == Kind::kMainGrad);
}

TEST_CASE("the update of a rank that ended early holds what others did later") {
  const Report report = judged_beside_one({{}, {2, -4, true, true}});
  CHECK(report.verdict() == RunVerdict::kCouldNotLook);
  REQUIRE(report.explanation.questions.size() == 1);
  CHECK(has(report.explanation.questions[0].sentence, "Of rank 1 nothing later was recorded"));
}

TEST_CASE(
    "an update that differs is wrong of a rank that went on, that changed nothing, or that ended with all others") {
  for (const std::vector<Step>& steps :
       {std::vector<Step>{{}, {2, -4, true, false}}, std::vector<Step>{{}, {2, -4, false, true}},
        std::vector<Step>{{2, -2, true, true}, {2, -4, true, true}}}) {
    const Report report = judged_beside_one(steps);
    CHECK(report.verdict() == RunVerdict::kDifferent);
    CHECK(report.first_wrong()->id.kind == Kind::kParamDelta);
  }
}
