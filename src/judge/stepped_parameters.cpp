#include "judge/stepped_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "base/count_of.h"
#include "base/describe.h"

namespace ttrace {
namespace {

bool exceeds(const Finding& finding) {
  return finding.verdict == Verdict::kFail && finding.reason == Reason::kExceedsTolerance && !finding.light &&
         !finding.by_override && finding.allowed && *finding.allowed > 0 && finding.difference;
}

// Knows which tensors are right: of which each finding passes, or says that they are zero on both sides.
class RightTensors {
 public:
  explicit RightTensors(std::span<const Finding> findings) {
    for (const Finding& finding : findings) {
      const bool is_right = finding.verdict == Verdict::kPass || finding.reason == Reason::kAllZero;
      const auto [found, is_new] = right_.emplace(finding.id, is_right);
      if (!is_new) found->second = found->second && is_right;
    }
  }

  bool contains(const TensorId& id) const {
    const auto found = right_.find(id);
    return found != right_.end() && found->second;
  }

 private:
  std::map<TensorId, bool> right_;
};

bool is_right_by_proof(const TensorId& id, const StepVerdicts& steps, const RightTensors& right) {
  const auto proof = steps.proved.find(id);
  return proof != steps.proved.end() && right.contains(id) &&
         std::all_of(proof->second.begin(), proof->second.end(),
                     [&](const TensorId& other) { return right.contains(other); });
}

bool is_whole(const TensorPair& pair) { return !pair.reference->sketched && !pair.candidate->sketched; }

bool have_same_bits(const TensorPair& after, const TensorPair& parameter) {
  if (!is_whole(after) || !is_whole(parameter) || after.reference->shape != parameter.reference->shape) return false;
  const std::vector<TensorPair> sides = {{after.reference, parameter.reference},
                                         {after.candidate, parameter.candidate}};
  const std::vector<Difference> differences = compare(sides, {0, {}, false});
  return std::all_of(differences.begin(), differences.end(), [](const Difference& difference) {
    return difference.differing == 0 && difference.nonfinite_mismatch == 0;
  });
}

// Returns how many times as far it is as it may be, by its norm or by a statistic.
double times_allowed(const Finding& finding) {
  double times = finding.difference->rel_err() / *finding.allowed;
  for (const JudgedStatistic& one : finding.statistics) times = std::max(times, std::fabs(one.measured) / one.allowed);
  return times;
}

bool is_computed_with_parameters(Kind kind) {
  switch (kind) {
    case Kind::kInput:
    case Kind::kOutput:
    case Kind::kGradInput:
    case Kind::kGradOutput:
    case Kind::kParamGrad:
    case Kind::kMainGrad:
    case Kind::kScalar:
      return true;
    default:
      return false;
  }
}

// Lets the finding pass within `times` what it is allowed, unless that would be any value.
bool pass_within(Finding& finding, double times) {
  if (!(times_allowed(finding) <= times) || *finding.allowed * times >= 1) return false;
  *finding.allowed *= times;
  for (JudgedStatistic& one : finding.statistics) one.allowed *= times;
  finding.exceeded = Statistic::kNorm;
  finding.ranks.clear();
  let_pass(finding);
  return true;
}

}  // namespace

void pass_stepped_parameters(std::span<const TensorPair> pairs, const StepVerdicts& steps,
                             std::vector<Finding>& findings, std::vector<std::string>& notes) {
  if (steps.proved.empty() || std::none_of(findings.begin(), findings.end(), exceeds)) return;
  const PairsById pairs_by_id = index_pairs(pairs);
  const RightTensors right(findings);
  std::map<std::int32_t, double> times_of;  // by iteration, of the parameter that is farthest
  std::vector<const Finding*> parameters;
  for (Finding& finding : findings) {
    if (finding.id.kind != Kind::kParam || !exceeds(finding)) continue;
    TensorId after = finding.id.with_kind(Kind::kParamAfter);
    --after.iteration;
    const auto pair = pairs_by_id.find(finding.id), pair_after = pairs_by_id.find(after);
    if (pair == pairs_by_id.end() || pair_after == pairs_by_id.end()) continue;
    if (!is_right_by_proof(after, steps, right) || !is_right_by_proof(after.with_kind(Kind::kParamDelta), steps, right))
      continue;
    if (!have_same_bits(*pair_after->second, *pair->second)) continue;
    double& times = times_of[finding.id.iteration];
    times = std::max(times, times_allowed(finding));
    let_pass(finding);
    parameters.push_back(&finding);
  }
  std::int64_t computed = 0;
  for (Finding& finding : findings) {
    const auto times = times_of.find(finding.id.iteration);
    if (times == times_of.end() || !is_computed_with_parameters(finding.id.kind) || !exceeds(finding)) continue;
    computed += pass_within(finding, std::min(times->second, kLightSlack));
  }
  if (parameters.empty()) return;
  notes.push_back(fmt::format(
      "{}, the first {}: farther from the reference's than in the perturbed runs, by elements whose gradient is about "
      "as small as its error; the steps that made them are right, and they are what these left, to the last bit; {} "
      "computed with them may be as many times as far",
      count_of(static_cast<std::int64_t>(parameters.size()), "parameter"), to_string(parameters.front()->id),
      count_of(computed, "tensor")));
}

}  // namespace ttrace
