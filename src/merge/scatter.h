// Splits a logical tensor's values into the shards that the ranks of a run hold: the inverse of the merge.
#pragma once

#include <vector>

#include "merge/rewrite.h"
#include "merge/values.h"

namespace ttrace {

// Multiplies `values` (row-major, of `layout`'s shape) by `layout`'s scale, rounds them to each shard's dtype, and
// returns the shards. Elements that no piece covers (padding) keep their recorded bytes. Throws InputError for an
// integer beyond 2^53, where doubles are no longer exact.
std::vector<RewrittenShard> scatter(const Values& values, const LogicalTensor& layout);

}  // namespace ttrace
