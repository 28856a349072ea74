#include "identify/census.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "base/parallel_for.h"

namespace ttrace {
namespace {

// Fewer entries are not worth a thread.
constexpr std::size_t kLeastSection = 4096;

struct RoleKey {
  std::string_view name;
  std::int64_t stage, expert;  // coordinates
  std::int32_t chunk;
  Pass pass;
  Kind kind;
  bool is_placed;
  friend bool operator==(const RoleKey&, const RoleKey&) = default;
};

struct RoleKeyHash {
  std::size_t operator()(const RoleKey& key) const {
    std::size_t hash = std::hash<std::string_view>()(key.name);
    const auto small = static_cast<std::int64_t>(key.pass) * 512 + static_cast<std::int64_t>(key.kind) * 2 +
                       static_cast<std::int64_t>(key.is_placed);
    for (const std::int64_t part : {key.stage, key.expert, std::int64_t{key.chunk}, small}) {
      hash = (hash ^ static_cast<std::size_t>(part)) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
    }
    return hash ^ hash >> 32;
  }
};

// Numbers roles in the order in which they are met.
class RoleNumbers {
 public:
  RoleNumbers(int stage_axis, int expert_axis) : stage_axis_(stage_axis), expert_axis_(expert_axis) {}

  std::uint32_t number_of(const PresentRank& rank, const Entry& entry) {
    const TensorId& id = entry.id;
    const RoleKey key{id.name, coordinate_on(rank, stage_axis_), coordinate_on(rank, expert_axis_), id.chunk, id.pass,
                      id.kind, is_placed_by_program(entry)};
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::uint32_t>(roles_.size()));
    if (is_new) roles_.push_back({&rank, &entry});
    return found->second;
  }
  std::vector<Role>& roles() { return roles_; }

 private:
  int stage_axis_, expert_axis_;
  std::unordered_map<RoleKey, std::uint32_t, RoleKeyHash> numbers_;
  std::vector<Role> roles_;
};

std::vector<Section> cut_into_sections(const RankTable& table, int threads) {
  std::size_t all = 0;
  for (const PresentRank& rank : table.ranks) all += rank.trace->entries.size();
  const std::size_t count =
      std::clamp<std::size_t>(all / kLeastSection, 1, static_cast<std::size_t>(thread_count(threads)));
  const std::size_t most = all / count + 1;  // entries of a section
  std::vector<Section> sections(1);
  std::size_t room = most;
  for (const PresentRank& rank : table.ranks) {
    for (std::span<const Entry> left = rank.trace->entries; !left.empty();) {
      if (room == 0) {
        sections.emplace_back();
        room = most;
      }
      const std::size_t taken = std::min(room, left.size());
      sections.back().ranks.push_back({&rank, left.first(taken)});
      left = left.subspan(taken);
      room -= taken;
    }
  }
  return sections;
}

}  // namespace

bool is_placed_by_program(const Entry& entry) { return entry.mapping && entry.mapping->axes; }

Census census_of(const RankTable& table, int stage_axis, int expert_axis, int threads) {
  Census census{{}, cut_into_sections(table, threads)};
  std::vector<RoleNumbers> own(census.sections.size(), RoleNumbers(stage_axis, expert_axis));  // numbers, by section
  parallel_for(census.sections.size(), threads, [&](std::size_t i) {
    std::vector<std::uint32_t>& roles = census.sections[i].roles;
    for (RankEntries& of_rank : census.sections[i].ranks) {
      for (const Entry& entry : of_rank.entries) {
        roles.push_back(own[i].number_of(*of_rank.rank, entry));
        of_rank.last_chunk = std::max(of_rank.last_chunk, entry.id.chunk);
        if (entry.id.microbatch < 0) continue;
        std::int64_t& count = of_rank.microbatches[entry.id.iteration];
        count = std::max(count, std::int64_t{entry.id.microbatch} + 1);
      }
    }
  });
  RoleNumbers all(stage_axis, expert_axis);
  std::vector<std::vector<std::uint32_t>> number(own.size());  // in `all`, by section and its own number
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (const Role& role : own[i].roles()) number[i].push_back(all.number_of(*role.rank, *role.entry));
  }
  parallel_for(census.sections.size(), threads, [&](std::size_t i) {
    for (std::uint32_t& role : census.sections[i].roles) role = number[i][role];
  });
  census.roles = std::move(all.roles());
  return census;
}

}  // namespace ttrace
