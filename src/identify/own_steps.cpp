#include "identify/own_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/count_of.h"
#include "base/describe.h"

namespace ttrace {
namespace {

using Names = std::set<std::pair<std::int32_t, std::string>>;  // chunk and name, as the rank records them

// By rank, the parameters that no optimizer of its own has; ranks that have all in theirs are absent.
std::map<const RankTrace*, Names> without_optimizer(const RankTable& table) {
  std::map<const RankTrace*, Names> without;
  for (const PresentRank& rank : table.ranks) {
    for (const TrainedGroup& group : rank.trace->trained) {
      if (!group.optimizer || !group.optimizer->empty()) continue;
      for (const std::string& name : group.parameters) without[rank.trace].emplace(group.chunk, name);
    }
  }
  return without;
}

// By rank, the parameters that got a gradient in an iteration and are in no optimizer that stepped.
std::map<std::pair<const RankTrace*, std::int32_t>, Names> stepped_by_none(const RankTable& table) {
  std::map<std::pair<const RankTrace*, std::int32_t>, Names> none;
  for (const PresentRank& rank : table.ranks) {
    for (const OptimizerStep& step : rank.trace->optimizer_steps) {
      if (!step.optimizer.empty()) continue;
      for (const std::string& name : step.parameters) none[{rank.trace, step.iteration}].emplace(step.chunk, name);
    }
  }
  return none;
}

bool are_copies(const Group& group) {
  const Entry& first = *group.shards.front().entry;
  return std::all_of(group.shards.begin(), group.shards.end(), [&](const Shard& shard) {
    return shard.entry->checksum == first.checksum && shard.entry->bytes == first.bytes;
  });
}

// False where the rank says that it keeps nothing of a title that the name begins with; numbers tell those of one title.
bool may_keep(const RankTrace& rank, std::string_view name) {
  if (!rank.kept) return true;
  return std::any_of(rank.kept->begin(), rank.kept->end(), [&](std::string_view title) {
    if (!name.starts_with(title)) return false;
    const std::size_t end = name.find_first_not_of("0123456789", title.size());
    return end != name.npos && name[end] == '.';
  });
}

bool is_of_step(Kind kind) { return is_optimizer_state(kind) || kind == Kind::kMainGrad || kind == Kind::kParamDelta; }

}  // namespace

void find_own_steps(Grouping& grouping, const RankTable& table) {
  if (grouping.microbatches.axes.empty()) return;
  const auto without = without_optimizer(table);
  if (without.empty()) return;
  const auto steps = [&](const Shard& shard) {
    const auto rank = without.find(shard.holder->trace);
    return rank == without.end() || !rank->second.contains({shard.entry->id.chunk, shard.entry->id.name.get()});
  };
  std::map<std::string, std::int64_t> owners;  // by parameter, the one coordinate whose ranks step it
  for (const Group& group : grouping.groups) {
    if (group.id.kind != Kind::kParam || group.shards.empty()) continue;
    std::set<std::int64_t> stepping, others;
    for (const Shard& shard : group.shards) {
      (steps(shard) ? stepping : others).insert(coordinate_on(*shard.holder, table, grouping.microbatches));
    }
    const bool is_owned = stepping.size() == 1 && !others.empty() && !others.contains(*stepping.begin());
    if (is_owned) owners[group.id.name] = *stepping.begin();
  }
  for (Group& group : grouping.groups) {
    const auto owner = owners.find(group.id.name);
    if (owner == owners.end() || !is_of_step(group.id.kind) || group.placement->is_placed()) continue;
    const auto is_the_owners = [&](const Shard& shard) {
      return coordinate_on(*shard.holder, table, grouping.microbatches) == owner->second;
    };
    if (std::none_of(group.shards.begin(), group.shards.end(), is_the_owners)) continue;
    std::erase_if(group.shards, [&](const Shard& shard) { return !is_the_owners(shard); });
    group.owned = true;
  }
}

std::vector<std::string> find_own_copies(Grouping& grouping, const RankTable& table) {
  if (grouping.microbatches.axes.empty()) return {};
  std::int64_t count = 0;
  std::string first;
  for (Group& group : grouping.groups) {
    if (group.id.kind != Kind::kBufferAfter || group.shards.empty() || group.placement->is_placed()) continue;
    std::set<const PresentRank*> holders;
    std::set<std::int64_t> coordinates;
    for (const Shard& shard : group.shards) {
      holders.insert(shard.holder);
      coordinates.insert(coordinate_on(*shard.holder, table, grouping.microbatches));
    }
    const bool is_of_one = coordinates.size() == 1 && holders.size() < table.ranks.size();
    if (!is_of_one) continue;
    const bool is_elsewhere = std::any_of(table.ranks.begin(), table.ranks.end(), [&](const PresentRank& rank) {
      return !holders.contains(&rank) && may_keep(*rank.trace, group.id.name.get());
    });
    if (is_elsewhere) continue;
    group.owned = true;
    if (count++ == 0) first = to_string(group.id);
  }
  if (count == 0) return {};
  return {
      fmt::format("{} of what is kept beside the models, the first {}, are kept by one rank alone: they were "
                  "compared there, and nothing is asked of the others",
                  count_of(count, "tensor"), first)};
}

void find_own_gradients(Grouping& grouping, const RankTable& table) {
  if (!grouping.microbatches.are_slices()) return;
  const auto none = stepped_by_none(table);
  if (none.empty()) return;
  std::set<std::pair<std::int32_t, std::string>> copies;  // parameters after an iteration, by that and their names
  for (const Group& group : grouping.groups) {
    const bool is_after = group.id.kind == Kind::kParamAfter && group.shards.size() > 1;
    if (is_after && are_copies(group)) copies.emplace(group.id.iteration, group.id.name);
  }
  for (Group& group : grouping.groups) {
    if (group.id.kind != Kind::kMainGrad || group.shards.size() < 2 || group.placement->is_placed()) continue;
    const bool is_unstepped = std::all_of(group.shards.begin(), group.shards.end(), [&](const Shard& shard) {
      const auto names = none.find({shard.holder->trace, group.id.iteration});
      return names != none.end() && names->second.contains({shard.entry->id.chunk, shard.entry->id.name.get()});
    });
    if (!is_unstepped || are_copies(group) || !copies.contains({group.id.iteration, group.id.name})) continue;
    group.loss = LossRole::kOwnGradient;
  }
}

}  // namespace ttrace
