// A light iteration has no activations that would show a gradient jump: where one channel alone differs, that is asked
// about, and what no kink explains stays wrong.
#include "diagnose/light_jumps.h"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr std::int64_t kLightChannels = 16, kInChannel = 8;

struct Light {
  std::vector<std::size_t> elements = {17, 19};  // of the gradient of the second layer's weight, which differ
  float error = 0.01F;                           // of these; 0.0013 of the norm
  double behind = 1e-3;                          // rel_err of the gradient of the first layer's
  double loss = 0, update = 0;                   // rel_err, where it differs
  bool is_light = true;
};

Finding beyond(Kind kind, const std::string& name, double rel_err, bool is_light) {
  Finding finding;
  finding.id = tensor_id(kind, name, kind == Kind::kScalar ? 0 : kNoMicrobatch);
  finding.id.iteration = 1;
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kExceedsTolerance;
  finding.allowed = 1e-6;
  finding.light = is_light;
  Difference& difference = finding.difference.emplace();
  difference.reference_square = difference.candidate_square = 1;
  difference.difference_square = rel_err * rel_err;
  return finding;
}

Trace trace_of(const std::vector<std::size_t>& elements, float error) {
  Trace trace = mesh_trace("", 1);
  std::vector<float> gradient(kLightChannels * kInChannel, 1);
  for (const std::size_t i : elements) gradient[i] += error;
  TensorId id = tensor_id(Kind::kMainGrad, "second.weight");
  id.iteration = 1;
  add_tensor(trace, 0, id, {kLightChannels, kInChannel}, gradient);
  id.name = "first.weight";
  add_tensor(trace, 0, id, {kLightChannels, kInChannel}, std::vector<float>(kLightChannels * kInChannel, error));
  return trace;
}

std::optional<std::size_t> jump_in(const Light& light, std::optional<Cause> cause = {}) {
  const Trace one = trace_of({}, 0.5F), other = trace_of(light.elements, light.error);
  const Alignment reference = align(one, annotations(""), {});
  const Alignment candidate = align(other, annotations(""), layout_of(reference));
  Report report;
  const double error =
      light.error * std::sqrt(static_cast<double>(light.elements.size()) / (kLightChannels * kInChannel));
  report.findings.push_back(beyond(Kind::kMainGrad, "first.weight", light.behind, light.is_light));
  report.findings.push_back(beyond(Kind::kMainGrad, "second.weight", error, light.is_light));
  if (light.loss > 0) report.findings.push_back(beyond(Kind::kScalar, "loss", light.loss, light.is_light));
  if (light.update > 0) {
    report.findings.push_back(beyond(Kind::kParamDelta, "first.weight", light.update, light.is_light));
  }
  report.explanation.roots.emplace_back().diagnosis = cause;
  return find_light_jump(report, std::vector<bool>(report.findings.size()), {reference, candidate, {}, {}});
}

}  // namespace

TEST_SUITE_BEGIN("diagnose");

TEST_CASE("a gradient of a light iteration that differs in one channel alone may have jumped") {
  CHECK(jump_in({}) == 1);
  CHECK(jump_in({{3, 3 + kInChannel}}) == 1);  // as of a transposed convolution, whose second dimension is the channels
  CHECK(jump_in({}, Cause::kRegion) == 1);
  CHECK(jump_in({.update = 5e-3}) == 1);
}

TEST_CASE("what no kink explains stays wrong") {
  CHECK_FALSE(jump_in({{17, 40}}));             // two channels
  CHECK_FALSE(jump_in({.error = 0.2F}));        // 0.025 of the norm
  CHECK_FALSE(jump_in({.behind = 0.011}));      // more than a jump may be
  CHECK_FALSE(jump_in({.loss = 1e-5}));         // its forward pass is before any gradient
  CHECK_FALSE(jump_in({.update = 0.02}));       // a step of its own
  CHECK_FALSE(jump_in({.is_light = false}));    // a whole one shows the activation
  CHECK_FALSE(jump_in({}, Cause::kUnreduced));  // it has a cause
}

TEST_SUITE_END();
