// Logical tensors as plain arrays, for what a view cannot do: rearrange them, multiply them, add them up.
#pragma once

#include <cstdint>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

using Values = std::vector<double>;  // row-major

// The logical values that the ranks of `replica` see; 0 where nothing fills them. Not of a tensor with `rows`.
Values values_of(const LogicalTensor& tensor, std::int32_t replica = 0);

// ||a - b|| / ||b||; infinity where it has no value.
double relative_distance(const Values& a, const Values& b);
double norm_of(const Values& values);
double dot_of(const Values& a, const Values& b);

}  // namespace ttrace
