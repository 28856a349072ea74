#include "identify/owned.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// The coordinate of all shards along the axes of slices; nothing where there are several.
std::optional<std::int64_t> only_coordinate(const Group& group, const RankTable& table,
                                            const Microbatches& microbatches) {
  std::set<std::int64_t> coordinates;
  for (const Shard& shard : group.shards) coordinates.insert(coordinate_on(*shard.holder, table, microbatches));
  if (coordinates.size() != 1) return std::nullopt;
  return *coordinates.begin();
}

// True where what the ranks hold are stretches of a flattened parameter: one may well be all of it, and each rank has the
// gradient of its own samples all the same.
bool is_stretch(const Group& group) {
  return std::any_of(group.shards.begin(), group.shards.end(),
                     [](const Shard& shard) { return shard.entry->mapping && shard.entry->mapping->fragment; });
}

// The parameters that one coordinate owns; none where some coordinate owns none, or the reference has others.
std::set<std::string, std::less<>> owned_parameters(const Grouping& grouping, const RankTable& table,
                                                    const ModelLayout& layout) {
  std::set<std::string, std::less<>> owned, held;
  std::set<std::int64_t> owners;
  for (const Group& group : grouping.groups) {
    if (group.id.kind != Kind::kParam || group.shards.empty()) continue;
    held.insert(group.id.name);
    const auto owner = only_coordinate(group, table, grouping.microbatches);
    if (!owner || group.placement->is_placed() || group.expert || is_stretch(group)) continue;
    owned.insert(group.id.name);
    owners.insert(*owner);
  }
  const bool all_held = std::all_of(layout.shapes.begin(), layout.shapes.end(), [&](const auto& shape) {
    return shape.first.second != Kind::kParam || held.contains(shape.first.first);
  });
  if (!all_held || std::ssize(owners) != grouping.microbatches.ranks) return {};
  return owned;
}

// The modules that have owned parameters, by path: whether each of these has the gradient that its step takes.
std::map<std::string, bool, std::less<>> owned_modules(const Grouping& grouping,
                                                       const std::set<std::string, std::less<>>& parameters) {
  std::map<std::string, const Group*> main_gradients;
  for (const Group& group : grouping.groups) {
    if (group.id.kind == Kind::kMainGrad) main_gradients[group.id.name] = &group;
  }
  std::map<std::string, bool, std::less<>> modules;
  for (const Group& group : grouping.groups) {
    if (group.id.kind != Kind::kParamGrad || !parameters.contains(group.id.name) || group.shards.empty()) continue;
    const auto main = main_gradients.find(group.id.name);
    const bool is_final = main != main_gradients.end() && !main->second->shards.empty() &&
                          main->second->shards[0].entry->checksum == group.shards[0].entry->checksum;
    const auto [module, is_new] = modules.try_emplace(std::string(owner_of(group.id.name)), is_final);
    module->second = module->second && is_final;
  }
  return modules;
}

// Adds the modules around these that have no other parameters inside, such as an expert of two linears.
void add_modules_around(const std::set<std::string, std::less<>>& parameters, const ModelLayout& layout,
                        std::map<std::string, bool, std::less<>>& modules) {
  std::map<std::string, bool, std::less<>> around;
  for (const auto& [module, is_final] : modules) {
    for (std::string_view path = owner_of(module); path != kRootModule; path = owner_of(path)) {
      const auto [found, is_new] = around.try_emplace(std::string(path), is_final);
      found->second = found->second && is_final;
    }
  }
  for (const auto& [key, shape] : layout.shapes) {
    const auto& [name, kind] = key;
    if (kind != Kind::kParam || parameters.contains(name)) continue;
    for (std::string_view path = owner_of(name); path != kRootModule; path = owner_of(path)) {
      if (const auto found = around.find(path); found != around.end()) around.erase(found);
    }
  }
  modules.merge(around);
}

// True for what the whole model is given on some rank alone, as the reference's is: the ids of a table that it has.
bool is_whole_input(const Group& group) {
  return group.id.kind == Kind::kInput && TensorName(group.id.name).path == kRootModule && group.reference != nullptr &&
         std::all_of(group.shards.begin(), group.shards.end(),
                     [&](const Shard& shard) { return shard.entry->shape == *group.reference; });
}

bool is_gradient(Kind kind) {
  return kind == Kind::kGradOutput || kind == Kind::kGradInput || kind == Kind::kParamGrad;
}

}  // namespace

void find_owned(Grouping& grouping, const RankTable& table, const ModelLayout& layout) {
  if (!grouping.microbatches.are_slices() || layout.reference == nullptr) return;
  const auto parameters = owned_parameters(grouping, table, layout);
  if (parameters.empty()) return;
  auto modules = owned_modules(grouping, parameters);
  add_modules_around(parameters, layout, modules);
  for (Group& group : grouping.groups) {
    const bool is_parameter = is_parameter_kind(group.id.kind);
    const std::string_view path = TensorName(group.id.name).path;
    const auto module = modules.find(is_parameter ? owner_of(path) : path);
    const bool may_be_owned = module != modules.end() || is_whole_input(group);
    const bool is_owned = is_parameter ? parameters.contains(group.id.name)
                                       : may_be_owned && !group.placement->is_placed() &&
                                             only_coordinate(group, table, grouping.microbatches).has_value();
    if (!is_owned || group.shards.empty()) continue;
    group.owned = true;
    if (is_gradient(group.id.kind) && module != modules.end() && module->second) group.loss = LossRole::kGradient;
    if (is_parameter) continue;
    TensorPlacement& placement = grouping.by_shape.emplace_back(*group.placement);
    placement.guessed = true;
    group.placement = &placement;
  }
}

}  // namespace ttrace
