#include "judge/unproved_steps.h"

#include "base/describe.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

using ProvedFamilies =
    std::map<std::string, bool>;  // names of parameters with '#' for numbers; whether a step is proved

std::string family_of(const TensorId& id) { return printable(without_numbers(id.name.get())); }

std::set<std::string> unproved_of(const ProvedFamilies& families) {
  std::set<std::string> unproved;
  for (const auto& [name, is_proved] : families) {
    if (!is_proved) unproved.insert(name);
  }
  return unproved;
}

// True where the parameter after a step is nearer to the reference's, by its tolerance, than to what it was before.
bool is_held_to_less_than(double square_of_change, const Finding& after) {
  if (after.verdict != Verdict::kPass || !after.difference) return false;
  const double allowed = after.allowed.value_or(0);
  return allowed * allowed * after.difference->reference_square < square_of_change;
}

}  // namespace

std::set<std::string> doubt_unmeasured_steps(std::span<const Finding> findings, const std::set<TensorId>& unheld,
                                             std::map<TensorId, std::string>& doubts) {
  for (const Finding& finding : findings) {
    const auto doubt = doubts.find(finding.id);
    if (finding.id.kind != Kind::kParamAfter || doubt == doubts.end() || !doubt->second.empty()) continue;
    if (!finding.difference || finding.difference->difference_square == 0) continue;
    const auto update = doubts.find(finding.id.with_kind(Kind::kParamDelta));
    if (update != doubts.end() && update->second == name_of(Reason::kNoise)) doubt->second = update->second;
  }
  ProvedFamilies families;
  for (const auto& [id, doubt] : doubts) {
    if (id.kind != Kind::kParamDelta) continue;
    const auto after = doubts.find(id.with_kind(Kind::kParamAfter));
    const bool is_after_proved = after != doubts.end() && after->second.empty();
    families[family_of(id)] |= doubt != name_of(Reason::kNoise) || is_after_proved;
  }
  for (const TensorId& id : unheld) families[family_of(id)] = false;
  return unproved_of(families);
}

std::set<std::string> find_steps_unseen_elsewhere(std::span<const Finding> findings,
                                                  const std::map<TensorId, double>& elsewhere,
                                                  const std::map<TensorId, std::string>& doubts) {
  ProvedFamilies families;
  for (const auto& [id, change] : elsewhere) families[family_of(id)];
  for (const Finding& finding : findings) {
    if (finding.id.kind != Kind::kParamAfter) continue;
    const auto change = elsewhere.find(finding.id.with_kind(Kind::kParamDelta));
    const auto doubt = doubts.find(finding.id);
    if (change == elsewhere.end() || doubt == doubts.end() || !doubt->second.empty()) continue;
    families[family_of(finding.id)] |= is_held_to_less_than(change->second, finding);
  }
  return unproved_of(families);
}

}  // namespace ttrace
