// Logical tensors as plain arrays, for hypotheses that rearrange them.
#pragma once

#include <cstdint>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

using Values = std::vector<double>;  // row-major

// A hypothesis may look at every tensor of a shape: that many values are a hundredth of a second each.
inline constexpr std::int64_t kMostValues = std::int64_t{1} << 20;

// The logical values that the ranks of `replica` see; 0 where nothing fills them. Not of a tensor with `rows`.
Values values_of(const LogicalTensor& tensor, std::int32_t replica = 0);
bool is_small(const LogicalTensor& tensor);

// ||a - b|| / ||b||; infinity where it has no value.
double relative_distance(const Values& a, const Values& b);
double norm_of(const Values& values);
double dot_of(const Values& a, const Values& b);

}  // namespace ttrace
