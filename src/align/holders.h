// Which ranks hold what of a logical tensor. Each list is sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// Those that hold any of it.
std::vector<std::int32_t> ranks_of(const LogicalTensor& tensor);

// Those that hold the element, by its row-major number.
std::vector<std::int32_t> holders_of(const LogicalTensor& tensor, std::int64_t element);

// `ranks`, sorted, and those that hold equal copies of what they hold, or the other terms of its sum.
std::vector<std::int32_t> with_copies(const LogicalTensor& tensor, std::span<const std::int32_t> ranks);

}  // namespace ttrace
