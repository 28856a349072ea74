// Logical tensors as plain arrays, for diagnoses that rearrange, multiply or add them up.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

using Values = std::vector<double>;  // row-major

// The logical values that the ranks of `replica` see; 0 where no piece fills them. The tensor must not have `rows`.
Values values_of(const LogicalTensor& tensor, std::int32_t replica = 0);

// A rank's own tensor, and where its elements lie in the logical tensor.
struct LocalTensor {
  std::int32_t rank = 0;
  Shape shape;
  std::vector<std::int64_t> positions;      // of each element, in row-major order; -1: it is padding
  std::int32_t microbatch = kNoMicrobatch;  // by the rank's own number
};

// The ranks' tensors that `values_of` puts together; of several terms only the first.
std::vector<LocalTensor> local_tensors_of(const LogicalTensor& tensor, std::int32_t replica = 0);

// Returns, by rank, the terms that it holds of replica 0. They add up to `values_of`.
std::map<std::int32_t, Values> values_by_rank(const LogicalTensor& tensor);

// Returns, by rank, what it has recorded of a tensor of one element: a copy, or a term. Without sketches.
std::map<std::int32_t, double> recorded_numbers(const LogicalTensor& tensor);

// ||a - b|| / ||b||; infinity where it has no value.
double relative_distance(const Values& a, const Values& b);
double norm_of(const Values& values);
double dot_of(const Values& a, const Values& b);

}  // namespace ttrace
