// Tensors that belong together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

const LogicalTensor* find_tensor(const Alignment& alignment, const TensorId& id);  // null when it was not recorded

// Of the same call as `id`; null when it was not recorded.
const LogicalTensor* find_tensor(const Alignment& alignment, TensorId id, Kind kind, const std::string& name);

// The same of all calls of a module in the iteration, micro-batch and pass of `id`, from the first to the last.
std::vector<const LogicalTensor*> find_calls(const Alignment& alignment, const TensorId& id, Kind kind,
                                             std::string_view module);

// The parameter `name` as the iteration of `id` begins with it; null when it was not recorded.
const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name);

}  // namespace ttrace
