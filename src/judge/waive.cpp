#include "judge/waive.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/annotation.h"
#include "judge/judge.h"

namespace ttrace {
namespace {

// True for a finding that keeps the verdict on the run from being `same`.
bool counts_against(const Finding& finding) { return is_wrong(finding) || finding.reason == Reason::kNoTolerance; }

}  // namespace

const Waiver* waiver_of(std::span<const Waiver> waivers, const TensorId& id) {
  const auto found = std::find_if(waivers.begin(), waivers.end(), [&](const Waiver& waiver) {
    return (waiver.kinds.empty() || waiver.kinds.contains(id.kind)) && matches(waiver.pattern, id.name);
  });
  return found == waivers.end() ? nullptr : &*found;
}

void apply_waivers(std::span<const Waiver> waivers, std::vector<Finding>& findings, Report& report) {
  // All findings about a tensor are waived together, since the tensor counts once.
  std::map<TensorId, const Waiver*> waived;
  for (const Finding& finding : findings) {
    if (finding.id.name.empty() || !counts_against(finding)) continue;
    if (const Waiver* waiver = waiver_of(waivers, finding.id)) waived.emplace(finding.id, waiver);
  }
  const auto first_waived = std::stable_partition(findings.begin(), findings.end(),
                                                  [&](const Finding& finding) { return !waived.contains(finding.id); });
  std::vector<Finding> moved(std::make_move_iterator(first_waived), std::make_move_iterator(findings.end()));
  findings.erase(first_waived, findings.end());
  std::stable_sort(moved.begin(), moved.end(), executes_before);
  for (Finding& finding : moved) {
    if (finding.verdict == Verdict::kPass) continue;
    const Waiver& waiver = *waived.at(finding.id);
    report.waived_findings.push_back({std::move(finding), waiver});
  }
  report.totals.waived += static_cast<std::int64_t>(waived.size());
}

}  // namespace ttrace
