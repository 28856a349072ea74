#include "report/module_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/tensor_name.h"
#include "text/readable.h"

namespace ttrace {
namespace {

// The names of a group's modules: what comes before the number and behind it, and the number.
struct Place {
  std::string before, behind;
  std::optional<std::int64_t> number;
  std::pair<std::string, std::string> group() const { return {before, number ? "#" + behind : ""}; }
};

std::string first_components(std::string_view path, std::size_t count) {
  std::vector<std::string> components = components_of(path);
  components.resize(std::min(components.size(), count));
  return fmt::format("{}", fmt::join(components, "."));
}

Place place_of(const std::string& name, Kind kind) {
  std::string_view path = TensorName(name).path;
  if (is_parameter_kind(kind) && owner_of(path) != kRootModule) path = owner_of(path);
  const auto number = number_in(path);
  if (!number) return {first_components(path, 2), "", std::nullopt};
  const std::string_view behind = path.substr(number->end);
  // The text behind the number begins with a dot, before which there is an empty component.
  return {std::string(path.substr(0, number->begin)), first_components(behind, 2), number->value};
}

struct Members {
  ModuleGroup group;
  Place place;
  std::set<std::int64_t> numbers;
};

std::string name_of(const Members& members) {
  if (!members.place.number) return members.place.before;
  const std::vector<std::int64_t> numbers(members.numbers.begin(), members.numbers.end());
  return members.place.before + short_list(numbers) + members.place.behind;
}

}  // namespace

std::vector<ModuleGroup> groups_of(const Report& report) {
  std::vector<Members> groups;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  std::set<TensorId> seen;  // a tensor may have several findings
  for (const Finding& finding : report.findings) {
    if (!is_wrong(finding) || finding.id.name.empty()) continue;
    Place place = place_of(finding.id.name, finding.id.kind);
    const auto [at, is_new] = index.emplace(place.group(), groups.size());
    if (is_new) groups.push_back({{}, place, {}});
    Members& members = groups[at->second];
    if (place.number) members.numbers.insert(*place.number);
    members.group.wrong += seen.insert(finding.id).second;
    members.group.ratio = std::max(members.group.ratio, ratio_of(finding).value_or(0));
    members.group.is_missing &= finding.verdict == Verdict::kMissing;
    members.group.kinds.insert(finding.id.kind);
  }
  for (const auto& [key, counts] : report.totals.by_name) {
    const auto at = index.find(place_of(key.first, key.second).group());
    if (at == index.end()) continue;
    groups[at->second].group.tensors += counts.compared + counts.missing + counts.not_seen;
  }
  std::vector<ModuleGroup> result;
  for (Members& members : groups) {
    members.group.name = name_of(members);
    result.push_back(std::move(members.group));
  }
  return result;
}

}  // namespace ttrace
