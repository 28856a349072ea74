// Whether the shards of a grid make up the whole logical tensor: what is not there, and what is there twice.
#pragma once

#include <optional>
#include <vector>

#include "align/frame.h"
#include "align/pieces.h"
#include "identify/identity.h"

namespace ttrace {

// Finds the slots without a shard, and names the ranks that should have filled them.
std::optional<Finding> find_omissions(const Group& group, const Frame& frame, const ShardGrid& grid,
                                      const RankTable& table);

// The same where ranks share a shard in fragments: finds the elements of the shard that none of them holds.
std::optional<Finding> find_lost_fragments(const Group& group, const Frame& frame, const ShardGrid& grid,
                                           const RankTable& table);

// Proves that the first occurrences fill every element once. The slots must be filled and the dimensions laid out; only
// a wrong layout function can then still leave gaps or overlaps. A tensor is the product of its dimensions, so each
// dimension is looked at by itself.
std::vector<Finding> find_uncovered(const Group& group, const ShardGrid& grid);

}  // namespace ttrace
