// Tells which ranks hold a logical tensor, or parts of it. Every list of ranks is sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// The ranks that hold any element of the tensor.
std::vector<std::int32_t> ranks_holding(const LogicalTensor& tensor);

// The ranks that hold one element; `element` is its row-major position in the tensor.
std::vector<std::int32_t> ranks_holding(const LogicalTensor& tensor, std::int64_t element);

// `ranks`, which are sorted, and all other ranks that hold the same boxes of the tensor: as replicas, or as other terms
// of the sum.
std::vector<std::int32_t> with_ranks_of_same_boxes(const LogicalTensor& tensor, std::span<const std::int32_t> ranks);

}  // namespace ttrace
