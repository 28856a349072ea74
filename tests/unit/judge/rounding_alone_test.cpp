// What is off by a few roundings, and is all that is wrong, passes.
#include "judge/rounding_alone.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace ttrace;

namespace {

struct OffBy {
  Kind kind = Kind::kMainGrad;
  double steps = 5;  // rounding steps of the dtype, in norm
  Dtype dtype = Dtype::kFloat32;
  std::int64_t differing = 60;  // of 64 elements
  double factor = 0;            // the part of the error that is one
  Statistic exceeded = Statistic::kNorm;
};

Finding finding_of(const OffBy& off, const std::string& name) {
  Finding finding;
  finding.id.kind = off.kind;
  finding.id.name = name;
  finding.verdict = Verdict::kFail;
  finding.reason = Reason::kExceedsTolerance;
  finding.exceeded = off.exceeded;
  const double error = off.steps * epsilon_of(off.dtype);
  finding.allowed = error / 2;
  Difference& difference = finding.difference.emplace();
  difference.elements = 64;
  difference.differing = off.differing;
  difference.reference_square = 1;
  difference.candidate_square = 1;
  difference.along = off.factor * error;
  difference.difference_square = error * error;
  return finding;
}

std::vector<Finding> judged(const std::vector<OffBy>& all, std::vector<std::string>& notes) {
  std::vector<LogicalTensor> tensors(all.size());
  std::vector<TensorPair> pairs(all.size());
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < all.size(); ++i) {
    findings.push_back(finding_of(all[i], "tensor" + std::to_string(i)));
    tensors[i].id = findings.back().id;
    tensors[i].dtype = all[i].dtype;
    pairs[i].reference = pairs[i].candidate = &tensors[i];
  }
  pass_rounding_alone(pairs, findings, notes);
  return findings;
}

bool passes(const OffBy& off) {
  std::vector<std::string> notes;
  const bool does = judged({off}, notes)[0].verdict == Verdict::kPass;
  CHECK(notes.size() == (does ? 1U : 0U));
  return does;
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("an input or a gradient that is off by a few roundings passes where nothing else is wrong") {
  CHECK(passes({}));
  CHECK(passes({.kind = Kind::kInput}));
  CHECK(passes({.dtype = Dtype::kFloat64}));
  CHECK(passes({.kind = Kind::kParamGrad, .steps = 7.9}));
  CHECK_FALSE(passes({.steps = 8.1}));
  CHECK_FALSE(passes({.kind = Kind::kOutput}));
  CHECK_FALSE(passes({.kind = Kind::kParamDelta}));
  CHECK_FALSE(passes({.dtype = Dtype::kBFloat16}));
  CHECK(passes({.differing = 16}));
  CHECK_FALSE(passes({.differing = 1}));  // a flipped bit
  CHECK_FALSE(passes({.factor = 0.9}));
  CHECK(passes({.kind = Kind::kInput, .factor = 0.9}));  // the deviation that samples are divided by
}

TEST_CASE("a factor that all layers have, or that stands out of the noise, is no rounding") {
  CHECK_FALSE(passes({.exceeded = Statistic::kCoherence}));
  CHECK_FALSE(passes({.exceeded = Statistic::kScale}));
}

TEST_CASE("what is off by roundings stays wrong beside something else that is") {
  std::vector<std::string> notes;
  for (const Finding& finding : judged({{}, {.kind = Kind::kOutput}}, notes)) CHECK(finding.verdict == Verdict::kFail);
  CHECK(notes.empty());
}

TEST_SUITE_END();
