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
  if (!has_kind || finding.reason != Reason::kExceedsTolerance || finding.by_override || !finding.difference)
    return false;
  const Difference& difference = *finding.difference;
  const auto pair = pairs.find(finding.id);
  if (pair == pairs.end() || difference.sketch || difference.elements < kFewestElements) return false;
  const double epsilon = epsilon_of(pair->second->candidate->dtype), error = difference.rel_err();
  const bool is_everywhere = difference.differing * 8 > difference.elements;  // one of some features may differ
  // Clipping may scale a gradient by almost 1.
  const bool is_factor = kind != Kind::kInput && std::fabs(difference.scale_err()) * 2 > error;
  return epsilon <= epsilon_of(Dtype::kFloat32) && error <= kMostRoundingSteps * epsilon && is_everywhere && !is_factor;
}

}  // namespace

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
