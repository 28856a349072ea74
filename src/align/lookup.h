// Tensors that belong together.
#pragma once

#include <string>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

const LogicalTensor* find_tensor(const Alignment& alignment, const TensorId& id);  // null when it was not recorded

// Of the same call as `id`; null when it was not recorded.
const LogicalTensor* find_tensor(const Alignment& alignment, TensorId id, Kind kind, const std::string& name);

// The parameter `name` as the iteration of `id` begins with it; null when it was not recorded.
const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name);

}  // namespace ttrace
