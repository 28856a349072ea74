// Tries what may lie between tensors of two programs, measured on their values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "correspond/made_of.h"
#include "merge/values.h"

namespace ttrace {

// The reference's tensors are the left side of a pattern, the candidate's the right.
struct PatternSides {
  PlacedTensors reference, candidate;
};

// The values of a tensor; where another dtype is given, rounded to it.
Values rounded_values_of(const LogicalTensor& tensor, std::optional<Dtype> dtype);

// The largest relative distance of a tensor of the reference from what the pattern makes of the candidate's; nothing
// where the shapes do not fit, or leave a size open. Values are rounded to `dtype` first, where there is one.
std::optional<double> distance_by(const std::string& pattern, const AxisSizes& sizes, const PatternSides& sides,
                                  std::optional<Dtype> dtype = std::nullopt);

}  // namespace ttrace
