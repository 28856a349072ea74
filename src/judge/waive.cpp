#include <algorithm>
#include <iterator>
#include <map>

#include "ttrace/annotation.h"
#include "ttrace/judge/judge.h"

namespace ttrace {
namespace {

bool counts_against(const Finding& finding) { return is_wrong(finding) || finding.reason == Reason::kNoTolerance; }

bool accepts(const Waiver& waiver, const TensorId& id) {
  return (waiver.kinds.empty() || waiver.kinds.contains(id.kind)) && matches(waiver.pattern, id.name);
}

}  // namespace

void set_waived_aside(std::span<const Waiver> waivers, std::vector<Finding>& findings, Report& report) {
  // A tensor is waived whole, since it counts once.
  std::map<TensorId, const Waiver*> waived;
  for (const Finding& finding : findings) {
    if (finding.id.name.empty() || !counts_against(finding)) continue;
    const auto waiver =
        std::find_if(waivers.begin(), waivers.end(), [&](const Waiver& item) { return accepts(item, finding.id); });
    if (waiver != waivers.end()) waived.emplace(finding.id, &*waiver);
  }
  const auto aside = std::stable_partition(findings.begin(), findings.end(),
                                           [&](const Finding& finding) { return !waived.contains(finding.id); });
  std::vector<Finding> taken(std::make_move_iterator(aside), std::make_move_iterator(findings.end()));
  findings.erase(aside, findings.end());
  std::stable_sort(taken.begin(), taken.end(), executes_before);
  for (Finding& finding : taken) {
    if (finding.verdict == Verdict::kPass) continue;
    const Waiver& waiver = *waived.at(finding.id);
    report.waived_findings.push_back({std::move(finding), waiver});
  }
  report.waived += static_cast<std::int64_t>(waived.size());
}

}  // namespace ttrace
