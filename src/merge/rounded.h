// A tensor rounded to a narrower dtype, as the conversion of a checkpoint does it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/logical_tensor.h"

namespace ttrace {

enum class RoundingMode : std::uint8_t {
  kNearest,     // ties to even
  kTowardZero,  // bits that do not fit are cut off
};

// True where `candidate` has a floating dtype of fewer digits than `reference`, and both are whole and of one shape.
bool is_narrower(const LogicalTensor& reference, const LogicalTensor& candidate);

// True where every element of `candidate`, as the ranks of replica 0 see it, is the reference's rounded to the dtype that
// `candidate` has. A value that is too large for it is not rounded to infinity, but lost. Of two such tensors; in memory
// for a part of them.
bool is_rounded(const LogicalTensor& reference, const LogicalTensor& candidate, RoundingMode rounding);

// Returns the tensor with its values rounded to nearest, which it holds in memory; nothing where one of them is too large
// for the dtype.
std::optional<LogicalTensor> rounded_to(const LogicalTensor& tensor, Dtype dtype);

}  // namespace ttrace
