#include "align/completeness.h"

#include <fmt/format.h>

#include <algorithm>

#include "align/coverage.h"
#include "align/group_finding.h"
#include "base/describe.h"

namespace ttrace {
namespace {

// Lists the boxes of the logical tensor that the elements `within` of a shard fill.
std::string describe_boxes(const ShardGrid& grid, std::int64_t shard, const Box& within) {
  std::vector<std::string> items;
  for (const PlacedBox& box : boxes_of(*grid.dimensions, digits_of(*grid.dimensions, shard), within)) {
    items.push_back(describe(box.logical));
  }
  return fmt::format("{}", fmt::join(items, ", "));
}

// The ranks that hold one of `parts` of dimension `d`, in the first replica and term.
std::vector<std::int32_t> ranks_holding_parts(const ShardGrid& grid, std::size_t d,
                                              const std::vector<std::size_t>& parts) {
  std::vector<std::int32_t> ranks;
  for (std::int64_t shard = 0; shard < grid.slots.shards; ++shard) {
    const std::size_t part = part_index((*grid.dimensions)[d], digits_of(*grid.dimensions, shard));
    const HeldShard& holder = grid.shards[static_cast<std::size_t>(shard)];
    if (holder.entry != nullptr && std::find(parts.begin(), parts.end(), part) != parts.end()) {
      ranks.push_back(holder.rank->rank);
    }
  }
  return ranks;
}

}  // namespace

std::optional<Finding> find_omissions(const Group& group, const Frame& frame, const ShardGrid& grid,
                                      const RankTable& table) {
  const Factoring& factoring = table.factorings[frame.factoring];
  std::vector<std::int32_t> ranks;
  std::vector<std::string> items;
  for (std::size_t slot = 0; slot < grid.shards.size(); ++slot) {
    if (grid.shards[slot].entry != nullptr) continue;
    const auto index = static_cast<std::int64_t>(slot);
    const std::int64_t shard = frame.slots.shard_of(index);
    const AxisCoordinates coordinates = coordinates_at(frame, index);
    ranks.push_back(rank_at(table, factoring, coordinates));
    items.push_back(fmt::format("{} of {}", describe_boxes(grid, shard, whole_box(shard_shape(grid, shard))),
                                describe_rank(table, factoring, coordinates)));
  }
  if (ranks.empty()) return std::nullopt;
  return finding_of(group, Verdict::kMissing, Reason::kOmission, "not there: " + comma_list(items), ranks);
}

std::optional<Finding> find_lost_fragments(const Group& group, const Frame& frame, const ShardGrid& grid,
                                           const RankTable& table) {
  std::vector<std::int32_t> ranks;
  std::vector<std::string> items;
  const Slots& slots = grid.slots;
  for (std::int64_t i = 0; i < slots.terms * slots.shards; ++i) {
    const std::int64_t term = i / slots.shards, shard = i % slots.shards;
    std::vector<Box> held;
    for (const LayeredBox& box : layer_fragments(grid, term, shard)) {
      if (box.layer == 0) held.push_back(box.held.box);
    }
    const Coverage coverage = cover(shard_shape(grid, shard), held);
    if (coverage.gaps.empty()) continue;
    std::vector<std::int32_t> sharers;
    for (std::int64_t replica = 0; replica < slots.replicas; ++replica) {
      sharers.push_back(
          rank_at(table, table.factorings[frame.factoring], coordinates_at(frame, slots.slot(replica, term, shard))));
    }
    for (const Region& gap : coverage.gaps) {
      items.push_back(fmt::format("{} of {}", describe_boxes(grid, shard, gap.box), describe_ranks(sharers)));
    }
    ranks.insert(ranks.end(), sharers.begin(), sharers.end());
  }
  if (ranks.empty()) return std::nullopt;
  return finding_of(group, Verdict::kMissing, Reason::kOmission, "in no rank's fragment: " + comma_list(items), ranks);
}

std::vector<Finding> find_uncovered(const Group& group, const ShardGrid& grid) {
  std::vector<Finding> findings;
  const Shape shape = extents_of(*grid.dimensions);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if ((*grid.dimensions)[d].is_covered) continue;
    const HeldRanges held = first_occurrences((*grid.dimensions)[d].layout);
    const auto across = [&](const Box& range) {
      Box box = whole_box(shape);
      box.start[d] = range.start[0];
      box.size[d] = range.size[0];
      return describe(box);
    };
    const Coverage coverage = cover({shape[d]}, held.ranges);
    std::vector<std::string> gaps, filled_twice;
    std::vector<std::int32_t> involved;
    for (const Region& gap : coverage.gaps) gaps.push_back(across(gap.box));
    if (!gaps.empty()) {
      findings.push_back(finding_of(group, Verdict::kMissing, Reason::kOmission,
                                    fmt::format("no rank holds {} of {}", comma_list(gaps), to_string(shape)),
                                    ranks_holding_parts(grid, d, held.parts)));
    }
    for (const Region& overlap : coverage.overlaps) {
      std::vector<std::size_t> holding;
      for (const std::size_t i : overlap.holders) holding.push_back(held.parts[i]);
      const std::vector<std::int32_t> ranks = ranks_holding_parts(grid, d, holding);
      filled_twice.push_back(fmt::format("{} by {}", across(overlap.box), describe_ranks(ranks)));
      involved.insert(involved.end(), ranks.begin(), ranks.end());
    }
    for (const std::size_t i : coverage.outside) {
      const std::vector<std::int32_t> ranks = ranks_holding_parts(grid, d, {held.parts[i]});
      filled_twice.push_back(
          fmt::format("{}, outside {}, by {}", across(held.ranges[i]), to_string(shape), describe_ranks(ranks)));
      involved.insert(involved.end(), ranks.begin(), ranks.end());
    }
    if (!filled_twice.empty()) {
      findings.push_back(finding_of(group, Verdict::kFail, Reason::kOverlap,
                                    "filled more than once: " + comma_list(filled_twice), involved));
    }
  }
  return findings;
}

}  // namespace ttrace
