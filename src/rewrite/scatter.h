// The inverse of the merge: a logical tensor's values, as the ranks of a run hold them.
#pragma once

#include <vector>

#include "merge/values.h"
#include "ttrace/rewrite/rewrite.h"

namespace ttrace {

// `values` of the logical tensor `layout` (row-major, its shape), rounded to each shard's dtype and times its scale.
// What no piece covers (padding) keeps the bytes that are recorded there. Throws InputError for an integer that is
// beyond 2^53, where doubles are no longer exact.
std::vector<RewrittenShard> scatter(const Values& values, const LogicalTensor& layout);

}  // namespace ttrace
