#include "step/other_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// Returns the counterparts of the parameter; its own name where it has none.
std::vector<std::string> names_of(const ParameterCounterparts& counterparts, const std::string& name) {
  const auto found = counterparts.find(name);
  return found == counterparts.end() ? std::vector{name} : found->second;
}

std::vector<TensorId> ids_of(const ParameterCounterparts& counterparts, const TensorId& id) {
  std::vector<TensorId> ids;
  for (const std::string& name : names_of(counterparts, id.name)) ids.emplace_back(id).name = name;
  return ids;
}

std::map<TensorId, std::string> renamed(const std::map<TensorId, std::string>& words,
                                        const ParameterCounterparts& counterparts) {
  std::map<TensorId, std::string> result;
  for (const auto& [id, text] : words) {
    for (const TensorId& other : ids_of(counterparts, id)) result.emplace(other, text);
  }
  return result;
}

// Each tensor's proof, where all that it is made of is proved.
std::map<TensorId, std::vector<TensorId>> renamed(const std::map<TensorId, std::vector<TensorId>>& rests_on,
                                                  const ParameterCounterparts& counterparts) {
  std::map<std::string, std::size_t> parts;
  for (const auto& [name, others] : counterparts) {
    for (const std::string& other : others) ++parts[other];
  }
  std::map<TensorId, std::set<TensorId>> all;
  std::map<TensorId, std::size_t> proved;
  for (const auto& [id, rests] : rests_on) {
    for (const TensorId& other : ids_of(counterparts, id)) {
      ++proved[other];
      for (TensorId rest : rests) {
        rest.name = other.name;
        all[other].insert(std::move(rest));
      }
    }
  }
  std::map<TensorId, std::vector<TensorId>> result;
  for (const auto& [id, rests] : all) {
    if (proved[id] == std::max<std::size_t>(parts[id.name], 1))
      result.emplace(id, std::vector(rests.begin(), rests.end()));
  }
  return result;
}

}  // namespace

StatedSteps in_names_of_reference(const StatedSteps& stated, const ParameterCounterparts& counterparts) {
  StatedSteps result;
  for (const auto& [key, steps] : stated) {
    for (const std::string& name : names_of(counterparts, key.second)) {
      std::vector<StatedStep>& all = result[{key.first, name}];
      all.insert(all.end(), steps.begin(), steps.end());
    }
  }
  return result;
}

StepCheck in_names_of_reference(StepCheck check, const ParameterCounterparts& counterparts) {
  std::vector<Finding> findings;
  for (const Finding& finding : check.findings) {
    for (const TensorId& id : ids_of(counterparts, finding.id)) {
      Finding& renamed = findings.emplace_back(finding);
      renamed.id = id;
      renamed.message = to_string(id) + finding.message.substr(to_string(finding.id).size());
    }
  }
  check.findings = std::move(findings);
  check.rests_on = renamed(check.rests_on, counterparts);
  check.optimizers = renamed(check.optimizers, counterparts);
  check.unchecked = renamed(check.unchecked, counterparts);
  // The counts are of the reference's parameters, too: each update is then counted out by its own name.
  std::set<TensorId> updates;
  std::map<std::string, bool> parameters;  // name -> all of its updates were checked
  for (const Finding& finding : check.findings) {
    if (finding.id.kind != Kind::kParamDelta) continue;
    updates.insert(finding.id);
    bool& all = parameters.try_emplace(finding.id.name, true).first->second;
    all = all && !check.unchecked.contains(finding.id);
  }
  StepCoverage& coverage = check.coverage;
  coverage.updates = static_cast<std::int64_t>(updates.size());
  coverage.updates_checked = coverage.updates - static_cast<std::int64_t>(check.unchecked.size());
  coverage.parameters = static_cast<std::int64_t>(parameters.size());
  coverage.parameters_checked =
      std::count_if(parameters.begin(), parameters.end(), [](const auto& one) { return one.second; });
  coverage.copies_checked = std::count_if(check.findings.begin(), check.findings.end(),
                                          [](const Finding& finding) { return finding.id.kind == Kind::kParamAfter; });
  coverage.not_checkable.clear();
  for (const auto& [id, reason] : check.unchecked) ++coverage.not_checkable[reason];
  return check;
}

}  // namespace ttrace
