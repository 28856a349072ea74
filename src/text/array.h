// Prints arrays as NumPy does.
#pragma once

#include <span>
#include <string>

#include "numeric/shape.h"

namespace ttrace {

// The row-major `values` in nested brackets, the last dimension from left to right, wrapped at 80 columns, with a
// newline at the end. Of more than 1,000 elements only the first and last three along each dimension are shown.
// `whole_numbers`: without a decimal point.
std::string array_text(std::span<const double> values, const Shape& shape, bool whole_numbers);

}  // namespace ttrace
