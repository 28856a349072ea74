// Where rounding moves an activation over the kink of a ReLU, its gradient jumps, and what is behind it moves.
#include "judge/jumps.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "judge/judge.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr std::int64_t kElements = 4096;

// What may differ from the reference.
struct Run {
  float at_zero = 1e-9F;    // the activation of element 7
  float jump = 0;           // of its gradient
  std::size_t jumping = 7;  // the element whose gradient it is
  float behind = 0;         // of each element of the gradient behind it, relative
  float update = 0;         // of the parameter's update, relative
  float loss = 2;
  std::vector<float> target = std::vector<float>(kElements, -1);
};

Trace trace_of(const Run& run) {
  Trace trace = mesh_trace("", 1);
  std::vector<float> activation(kElements, 1), gradient(kElements, 1), behind(kElements, 1 + run.behind);
  activation[7] = run.at_zero;
  gradient[run.jumping] += run.jump;
  test::add_tensor(trace, 0, tensor_id(Kind::kOutput, "conv", 0), {kElements}, activation);
  test::add_tensor(trace, 0, tensor_id(Kind::kOutput, "target", 0), {kElements}, run.target);
  test::add_tensor(trace, 0, tensor_id(Kind::kScalar, "loss", 0), {}, {run.loss});
  test::add_tensor(trace, 0, tensor_id(Kind::kGradOutput, "conv", 0), {kElements}, gradient);
  test::add_tensor(trace, 0, tensor_id(Kind::kParamGrad, "conv.weight", 0), {kElements}, behind);
  test::add_tensor(trace, 0, tensor_id(Kind::kMainGrad, "conv.weight"), {kElements}, behind);
  test::add_tensor(trace, 0, tensor_id(Kind::kParamDelta, "conv.weight"), {kElements},
                   std::vector<float>(kElements, 1 + run.update));
  return trace;
}

Report judged(const Run& run, const Run& of_reference = {}) {
  const Trace one = trace_of(of_reference), other = trace_of(run);
  const Alignment reference = align(one, annotations(""), {});
  const Alignment candidate = align(other, annotations(""), layout_of(reference));
  const Matching matching = match(reference, candidate);
  ToleranceFile tolerance;
  for (const Kind kind : {Kind::kOutput, Kind::kGradOutput}) tolerance.tensors[{kind, "conv"}].allowed = 1e-6;
  tolerance.tensors[{Kind::kOutput, "target"}].allowed = 1e-6;
  for (const Kind kind : {Kind::kParamGrad, Kind::kMainGrad, Kind::kParamDelta}) {
    tolerance.tensors[{kind, "conv.weight"}].allowed = 1e-6;
  }
  tolerance.tensors[{Kind::kScalar, "loss"}].allowed = 1e-6;
  return judge_all(reference, matching, compare(matching.pairs, {1, {}, false}), &tolerance);
}

constexpr float kJump = -0.5F;  // 0.0078 of the norm

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a gradient may jump where its activation crosses zero, and what follows may differ by so much") {
  const Report report = judged({-1e-9F, kJump, 7, 0.005F, 0.005F});
  CHECK(findings_in(report).empty());
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes[0] ==
        "conv grad_output, iteration 0, micro-batch 0 jumps by 0.00781 where its activation is zero but for "
        "rounding: 1e-09, and -1e-09 in the candidate; 3 tensors behind such were allowed 3 times as much");
}

TEST_CASE("it may not where the activation has the same sign, or at another element") {
  CHECK(findings_in(judged({2e-9F, kJump, 7, 0.005F})).size() == 3);
  CHECK(findings_in(judged({-1e-9F, kJump, 8, 0.005F})).size() == 3);
  CHECK(findings_in(judged({-1e-9F, kJump, 7, 0.005F})).empty());
}

TEST_CASE("it may jump between a side of the kink and the kink itself, where an absolute value has the slope 0") {
  CHECK(findings_in(judged({0, kJump, 7, 0.005F}, {-1e-9F})).empty());
  CHECK(findings_in(judged({-1e-9F, kJump, 7, 0.005F}, {0})).empty());
  CHECK(findings_in(judged({0, kJump, 7, 0.005F}, {0})).size() == 3);
}

TEST_CASE("it may jump where the activation crosses another one, of which an absolute difference is taken") {
  Run run{1e-9F, kJump, 8};
  run.target[8] = 1;
  CHECK(findings_in(judged(run)).size() == 2);  // the target is another one itself
  run.target[8] = 1 + 1e-7F;
  const auto with_target = [&](float of_reference) {
    Run reference;
    reference.target[8] = of_reference;
    return findings_in(judged(run, reference));
  };
  CHECK(with_target(1 - 1e-7F).empty());
  CHECK(with_target(1 + 1e-7F).size() == 1);
}

TEST_CASE("what is wrong by more, or before it, stays wrong") {
  CHECK(findings_in(judged({-1e-9F, kJump, 7, 0.05F})) ==
        std::vector<std::string>{"conv.weight param_grad: exceeds-tolerance",
                                 "conv.weight main_grad: exceeds-tolerance"});
  CHECK(findings_in(judged({-1e-9F, kJump, 7, 0, 0, 2.001F})) ==
        std::vector<std::string>{"loss scalar: exceeds-tolerance"});
  CHECK(findings_in(judged({-1e-9F, 0, 7, 0.005F})).size() == 2);  // nothing jumps
}

TEST_CASE("behind a jump of more than a percent nothing passes for it, and the report says so") {
  const Report report = judged({-1e-9F, -0.9F, 7, 0.005F});
  CHECK(findings_in(report).size() == 3);
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes[0].find("more than 0.01") != std::string::npos);
  CHECK(is_noted_jump(report.first_wrong()->id, report.notes));
}
