#include "judge/coherence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/tensor_name.h"
#include "judge/messages.h"
#include "judge/waive.h"

namespace ttrace {
namespace {

struct Members {
  std::vector<TensorScale> scales;
  std::vector<std::size_t> findings;  // of each scale
};

// Tensors that pass, and whose scale was tested and is pooled with those of other layers. What sketches say of a scale
// is not sure enough to be pooled.
Members members_of(const ToleranceFile& tolerance, std::span<const Finding> findings) {
  Members members;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    if (finding.verdict != Verdict::kPass || !finding.difference || finding.difference->sketch) continue;
    const bool has_scale = std::any_of(finding.statistics.begin(), finding.statistics.end(),
                                       [](const JudgedStatistic& one) { return one.statistic == Statistic::kScale; });
    if (!has_scale || !tolerance.coherence.contains({finding.id.kind, without_numbers(finding.id.name)})) continue;
    members.scales.push_back({finding.id, finding.difference->scale_err()});
    members.findings.push_back(i);
  }
  return members;
}

}  // namespace

void judge_coherence(const ToleranceFile& tolerance, std::span<const Waiver> waivers, std::vector<Finding>& findings) {
  const bool is_known_different = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return is_wrong(finding) && (finding.id.name.empty() || waiver_of(waivers, finding.id) == nullptr);
  });
  if (is_known_different) return;
  const Members members = members_of(tolerance, findings);
  for (const auto& [group, contrasts] : contrasts_of(members.scales)) {
    const JudgedStatistic judged{Statistic::kCoherence, mean_of(contrasts),
                                 allowed_for(tolerance.coherence.at(group), contrasts)};
    Finding* first = nullptr;
    for (const Contrast& contrast : contrasts) {
      Finding& finding = findings[members.findings[contrast.tensor]];
      if (first == nullptr || executes_before(finding, *first)) first = &finding;
    }
    first->statistics.push_back(judged);
    if (std::fabs(judged.measured) <= judged.allowed) continue;
    first->verdict = Verdict::kFail;
    first->reason = Reason::kExceedsTolerance;
    first->exceeded = Statistic::kCoherence;
    first->message = fmt::format("{}: {}", to_string(first->id), describe_coherence(group, contrasts.size(), judged));
  }
}

}  // namespace ttrace
