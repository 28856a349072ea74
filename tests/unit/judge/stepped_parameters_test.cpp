// A parameter that a right step left of others is right in the next iteration, and so is what answers it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

TensorId in_iteration(TensorId id, std::int32_t iteration) {
  id.iteration = iteration;
  return id;
}

const TensorId kGradient = tensor_id(Kind::kMainGrad, "conv.weight"), kUpdate = kGradient.with_kind(Kind::kParamDelta),
               kAfter = kGradient.with_kind(Kind::kParamAfter), kBefore = kGradient.with_kind(Kind::kParam),
               kNext = in_iteration(kBefore, 1), kComputed = in_iteration(tensor_id(Kind::kOutput, "conv", 0), 1);

// What differs from the reference's 1, of one of two elements.
struct Errors {
  float after = 0.01F, next = 0.01F, computed = 0.01F, gradient = 0;
};

Trace trace_with(const Errors& errors) {
  Trace trace = mesh_trace("", 1);
  test::add_tensor(trace, 0, kBefore, {2}, {0, 0});
  test::add_tensor(trace, 0, kGradient, {2}, {1, 1 + errors.gradient});
  test::add_tensor(trace, 0, kUpdate, {2}, {1, 1 + errors.after});
  test::add_tensor(trace, 0, kAfter, {2}, {1, 1 + errors.after});
  test::add_tensor(trace, 0, kNext, {2}, {1, 1 + errors.next});
  test::add_tensor(trace, 0, kComputed, {2}, {1, 1 + errors.computed});
  return trace;
}

// After the step a jump of an element is allowed, and elsewhere a fifth of what it moves.
std::vector<std::string> findings_of(const Errors& errors, bool is_proved = true) {
  const Trace one = trace_with({0, 0, 0, 0}), other = trace_with(errors);
  const Alignment reference = align(one, annotations(""), {}), candidate = align(other, annotations(""), {});
  const Matching matching = match(reference, candidate);
  ToleranceFile tolerance;
  for (const TensorId& id : {kBefore, kGradient, kUpdate, kAfter, kComputed}) {
    const bool jumps = id.kind == Kind::kParamDelta || id.kind == Kind::kParamAfter;
    tolerance.tensors[{id.kind, id.name}].allowed = jumps ? 0.1 : 0.0014;
  }
  StepVerdicts steps;
  if (is_proved) steps.proved = {{kUpdate, {kGradient}}, {kAfter, {kBefore, kUpdate}}};
  Report report = judge_all(reference, matching, compare(matching.pairs, {1, {}, false}), &tolerance, {}, steps);
  std::erase_if(report.findings, [](const Finding& finding) { return finding.reason == Reason::kAllZero; });
  return findings_in(report);
}

const std::string kWrongWeight = "conv.weight param: exceeds-tolerance",
                  kWrongOutput = "conv output: exceeds-tolerance";

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a weight that a right step has moved by a jump is right in the next iteration, with what answers it") {
  CHECK(findings_of({}).empty());
}

TEST_CASE("a weight is wrong that is not what the step left, however right that was") {
  CHECK(findings_of({0.01F, 0.011F}) == std::vector{kWrongWeight, kWrongOutput});
  CHECK(findings_of({0, 0.01F}) == std::vector{kWrongWeight, kWrongOutput});
}

TEST_CASE("a weight is wrong after a step that nothing proves, or of a gradient that is wrong") {
  CHECK(findings_of({}, false) == std::vector{kWrongWeight, kWrongOutput});
  CHECK(findings_of({0.01F, 0.01F, 0.01F, 0.01F}) ==
        std::vector<std::string>{"conv.weight main_grad: exceeds-tolerance", kWrongWeight, kWrongOutput});
}

TEST_CASE("what an iteration computes may be as many times as far as its parameters, and in no case ten times") {
  CHECK(findings_of({0.01F, 0.01F, 0.011F}) == std::vector{kWrongOutput});
  CHECK(findings_of({0.05F, 0.05F, 0.019F}).empty());
  CHECK(findings_of({0.05F, 0.05F, 0.021F}) == std::vector{kWrongOutput});
}

TEST_SUITE_END();
