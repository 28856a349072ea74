#include "judge/unmeasured_steps.h"

#include "base/describe.h"
#include "base/tensor_name.h"

namespace ttrace {

std::vector<std::string> doubt_unmeasured_steps(std::span<const Finding> findings, const std::set<TensorId>& unheld,
                                                std::map<TensorId, std::string>& doubts) {
  for (const Finding& finding : findings) {
    const auto doubt = doubts.find(finding.id);
    if (finding.id.kind != Kind::kParamAfter || doubt == doubts.end() || !doubt->second.empty()) continue;
    if (!finding.difference || finding.difference->difference_square == 0) continue;
    const auto update = doubts.find(finding.id.with_kind(Kind::kParamDelta));
    if (update != doubts.end() && update->second == name_of(Reason::kNoise)) doubt->second = update->second;
  }
  std::map<std::string, bool> families;  // whether a step is proved
  for (const auto& [id, doubt] : doubts) {
    if (id.kind != Kind::kParamDelta) continue;
    const auto after = doubts.find(id.with_kind(Kind::kParamAfter));
    const bool is_after_proved = after != doubts.end() && after->second.empty();
    families[printable(without_numbers(id.name.get()))] |= doubt != name_of(Reason::kNoise) || is_after_proved;
  }
  for (const TensorId& id : unheld) families[printable(without_numbers(id.name.get()))] = false;
  std::vector<std::string> unproved;
  for (const auto& [name, is_proved] : families) {
    if (!is_proved) unproved.push_back(name);
  }
  return unproved;
}

}  // namespace ttrace
