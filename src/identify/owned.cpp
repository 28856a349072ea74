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

struct OwnedModule {
  bool is_final = true;               // each of its parameters has the gradient that its step takes
  std::optional<std::int64_t> owner;  // the coordinate that has all of its parameters; nothing where several have some
};

using OwnedModules = std::map<std::string, OwnedModule, std::less<>>;

void add(const std::string& path, const OwnedModule& inside, OwnedModules& modules) {
  const auto [found, is_new] = modules.try_emplace(path, inside);
  OwnedModule& module = found->second;
  module.is_final = module.is_final && inside.is_final;
  if (module.owner != inside.owner) module.owner.reset();
}

// The modules that have owned parameters, by path.
OwnedModules owned_modules(const Grouping& grouping, const RankTable& table,
                           const std::set<std::string, std::less<>>& parameters) {
  std::map<std::string, const Group*> main_gradients;
  for (const Group& group : grouping.groups) {
    if (group.id.kind == Kind::kMainGrad) main_gradients[group.id.name] = &group;
  }
  OwnedModules modules;
  for (const Group& group : grouping.groups) {
    if (group.id.kind != Kind::kParamGrad || !parameters.contains(group.id.name) || group.shards.empty()) continue;
    const auto main = main_gradients.find(group.id.name);
    const bool is_final = main != main_gradients.end() && !main->second->shards.empty() &&
                          main->second->shards[0].entry->checksum == group.shards[0].entry->checksum;
    add(std::string(owner_of(group.id.name)), {is_final, only_coordinate(group, table, grouping.microbatches)},
        modules);
  }
  return modules;
}

// Adds the modules around these that have no other parameters inside, such as an expert of two linears.
void add_modules_around(const std::set<std::string, std::less<>>& parameters, const ModelLayout& layout,
                        OwnedModules& modules) {
  OwnedModules around;
  for (const auto& [module, owned] : modules) {
    for (std::string_view path = owner_of(module); path != kRootModule; path = owner_of(path)) {
      add(std::string(path), owned, around);
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

// The owned module that a tensor of this module belongs to: the module itself, or the innermost around it that one
// coordinate owns, such as the expert around an activation. Null where there is none.
const OwnedModule* module_of(std::string_view path, const OwnedModules& modules) {
  if (const auto found = modules.find(path); found != modules.end()) return &found->second;
  while (path != kRootModule) {
    path = owner_of(path);
    const auto around = modules.find(path);
    if (around != modules.end()) return around->second.owner ? &around->second : nullptr;
  }
  return nullptr;
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

void own(Group& group, Grouping& grouping) {
  group.owned = true;
  if (is_parameter_kind(group.id.kind)) return;
  TensorPlacement& placement = grouping.by_shape.emplace_back(*group.placement);
  placement.guessed = true;
  group.placement = &placement;
}

bool is_activation(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradInput || kind == Kind::kGradOutput;
}

// Owns what modules are given and return that one coordinate alone calls, for the whole of the reference's samples, and
// the gradients of their parameters, where each coordinate has such: experts that all ranks hold, and deal out among them.
void own_calls(Grouping& grouping, const RankTable& table) {
  std::map<std::string, std::optional<std::int64_t>, std::less<>> callers;  // nothing: several, or of some samples
  for (const Group& group : grouping.groups) {
    const std::string_view path = TensorName(group.id.name).path;
    if (!is_activation(group.id.kind) || path == kRootModule || group.shards.empty()) continue;
    const bool is_whole =
        group.reference != nullptr && !group.placement->is_placed() && !group.of_sample &&
        std::ranges::all_of(group.shards, [&](const Shard& shard) { return shard.entry->shape == *group.reference; });
    const auto caller = is_whole ? only_coordinate(group, table, grouping.microbatches) : std::nullopt;
    const auto [found, is_new] = callers.try_emplace(std::string(path), caller);
    if (found->second != caller) found->second.reset();
  }
  std::set<std::int64_t> owners;
  for (const auto& [path, caller] : callers) {
    if (caller) owners.insert(*caller);
  }
  if (std::ssize(owners) != grouping.microbatches.ranks) return;
  for (Group& group : grouping.groups) {
    const std::string_view path = TensorName(group.id.name).path;
    const bool is_gradient_of_parameter = group.id.kind == Kind::kParamGrad;
    if (!(is_gradient_of_parameter || is_activation(group.id.kind)) || group.shards.empty()) continue;
    const auto found = callers.find(is_gradient_of_parameter ? owner_of(path) : path);
    if (found == callers.end() || !found->second) continue;
    if (only_coordinate(group, table, grouping.microbatches) == found->second) own(group, grouping);
  }
}

}  // namespace

void find_owned(Grouping& grouping, const RankTable& table, const ModelLayout& layout) {
  if (!grouping.microbatches.are_slices() || layout.reference == nullptr) return;
  const auto parameters = owned_parameters(grouping, table, layout);
  if (parameters.empty()) {
    own_calls(grouping, table);
    return;
  }
  auto modules = owned_modules(grouping, table, parameters);
  add_modules_around(parameters, layout, modules);
  for (Group& group : grouping.groups) {
    const bool is_parameter = is_parameter_kind(group.id.kind);
    const std::string_view path = TensorName(group.id.name).path;
    const OwnedModule* module = module_of(is_parameter ? owner_of(path) : path, modules);
    const auto coordinate = only_coordinate(group, table, grouping.microbatches);
    const bool is_the_owners = module != nullptr && (!module->owner || module->owner == coordinate);
    const bool may_be_owned = is_the_owners || is_whole_input(group);
    const bool is_owned = is_parameter ? parameters.contains(group.id.name)
                                       : may_be_owned && !group.placement->is_placed() && coordinate.has_value();
    if (!is_owned || group.of_sample || group.shards.empty()) continue;
    own(group, grouping);
    if (is_gradient(group.id.kind) && module != nullptr && module->is_final) group.loss = LossRole::kGradient;
  }
}

}  // namespace ttrace
