// Slices as NumPy writes them.
#pragma once

#include <string>

#include "base/mapping.h"

namespace ttrace {

// Reads `0:4, :, -1`: for each dimension from the first on a range, whose ends may be left out, or one index, which
// keeps its dimension with one element. What counts from the end is negative; dimensions that are not named are whole.
// Throws InputError where the text is no slice, or one that holds no element of the shape.
Box parse_slice(const std::string& text, const Shape& shape);

}  // namespace ttrace
