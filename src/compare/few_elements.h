// Tells a difference that a few elements have alone from one that many share.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "compare/compare.h"

namespace ttrace {

// True where all of the tensor was recorded, at known places of the logical one.
bool has_whole_values(const LogicalTensor& tensor);

// Returns the elements, by their row-major number, without which the rest differs by no more than `allowed` times the
// reference's norm, the worst first; none where all differ by no more. Nothing where they are more than a few, or where
// the values were not recorded.
std::optional<std::vector<std::size_t>> few_elements_that_differ(const TensorPair& pair, double allowed);

}  // namespace ttrace
