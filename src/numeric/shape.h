// Shapes of tensors, and the row-major order of their elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

using Shape = std::vector<std::int64_t>;

// Product of the dimensions; 1 for a scalar. The shape must have been checked (load does).
std::int64_t element_count(const Shape& shape);

// Returns, for each dimension, how many elements lie between two neighbours along it.
Shape row_major_strides(const Shape& shape);

// The index of the element at the row-major `position`, which lies in the shape.
Shape index_at(std::int64_t position, const Shape& shape);

std::string to_string(const Shape& shape);  // "[8, 16, 64]"

}  // namespace ttrace
