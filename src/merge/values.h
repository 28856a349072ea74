// Logical tensors as plain arrays, for what a view cannot do: rearrange them, multiply them, add them up.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

using Values = std::vector<double>;  // row-major

// The logical values that the ranks of `replica` see; 0 where nothing fills them. Not of a tensor with `rows`.
Values values_of(const LogicalTensor& tensor, std::int32_t replica = 0);

// What one rank holds of a logical tensor, as it lies in that rank's memory.
struct Local {
  std::int32_t rank = 0;
  Shape shape;                       // of the rank's own tensor, row-major
  std::vector<std::int64_t> places;  // of its elements in the logical tensor, row-major; -1: nowhere
};
// The parts that `values_of` puts together; of several terms the first.
std::vector<Local> locals_of(const LogicalTensor& tensor, std::int32_t replica = 0);

// The terms that each rank holds, of replica 0: they add up to `values_of`.
std::map<std::int32_t, Values> values_by_rank(const LogicalTensor& tensor);

// ||a - b|| / ||b||; infinity where it has no value.
double relative_distance(const Values& a, const Values& b);
double norm_of(const Values& values);
double dot_of(const Values& a, const Values& b);

}  // namespace ttrace
