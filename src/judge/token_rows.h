// Tensors with a number for each expert that a token goes to: [.., slots], the tokens' dimensions before the last.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

struct SlotChange {
  std::set<std::int64_t> dropped;  // tokens
  // By token, where each of its slots goes: a permutation of the slots. Others stay where they are.
  std::map<std::int64_t, std::vector<std::int64_t>> moved;
};

// `tensor` as [tokens, slots], without the tokens that are dropped, each slot where `change` puts it. The tokens are
// counted row-major. The tensor must have two dimensions at least, and no `rows`.
LogicalTensor with_changed_slots(const LogicalTensor& tensor, const SlotChange& change);

}  // namespace ttrace
