#include "judge/rounding_alone.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/count_of.h"
#include "base/describe.h"
#include "judge/later_sums.h"

namespace ttrace {
namespace {

bool is_rounding_alone(const Finding& finding, const PairsById& pairs) {
  constexpr std::int64_t kFewestElements = 16;  // of fewer, chance makes a factor
  const Kind kind = finding.id.kind;
  const bool has_kind = kind == Kind::kInput || kind == Kind::kParamGrad || kind == Kind::kMainGrad;
  const auto pair = pairs.find(finding.id);
  if (!has_kind || finding.by_override || pair == pairs.end()) return false;
  // One of some features may differ.
  if (!is_off_by_steps(finding, pair->second->candidate->dtype, kMostRoundingSteps, 8)) return false;
  const Difference& difference = *finding.difference;
  // Clipping may scale a gradient by almost 1.
  const bool is_factor = kind != Kind::kInput && std::fabs(difference.scale_err()) * 2 > difference.rel_err();
  return difference.elements >= kFewestElements && !is_factor;
}

}  // namespace

bool is_off_by_steps(const Finding& finding, Dtype dtype, double steps, std::int64_t in_each) {
  if (finding.reason != Reason::kExceedsTolerance || finding.exceeded != Statistic::kNorm || !finding.difference) {
    return false;
  }
  const Difference& difference = *finding.difference;
  return !difference.sketch && epsilon_of(dtype) <= epsilon_of(Dtype::kFloat32) &&
         difference.rel_err() <= steps * epsilon_of(dtype) && difference.differing * in_each > difference.elements;
}

void pass_rounding_alone(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                         std::vector<std::string>& notes) {
  if (std::ranges::none_of(findings, is_wrong)) return;
  const PairsById by_id = index_pairs(pairs);
  const auto is_right = [&](const Finding& finding) { return !is_wrong(finding) || is_rounding_alone(finding, by_id); };
  if (!std::ranges::all_of(findings, is_right)) return;
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    if (!is_wrong(finding)) continue;
    if (count++ == 0) first = to_string(finding.id);
    finding.verdict = Verdict::kPass;
    finding.reason = Reason::kNone;
    finding.ranks.clear();
  }
  notes.push_back(fmt::format(
      "{}, the first {}: off by more than is allowed, and by no more than {} rounding steps of the dtype, in many "
      "elements; nothing else is wrong, so sums outside of modules or in another order are rounded otherwise",
      count_of(count, "tensor"), first, kMostRoundingSteps));
}

}  // namespace ttrace
