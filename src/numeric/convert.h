// Widens recorded elements, and rounds values back to a dtype. The data need not be aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/dtype.h"

namespace ttrace {

// Reads `count` elements as fp64. This is exact for every dtype, save that an int64 beyond 2^53 is rounded to nearest.
// NaN stays NaN, infinities stay infinities, subnormals and the sign of zero are kept.
void widen(const std::byte* data, Dtype dtype, std::int64_t count, double* out);

// Reads `count` elements of an integer dtype or bool, exactly.
void widen(const std::byte* data, Dtype dtype, std::int64_t count, std::int64_t* out);

// Writes `count` values in a floating dtype, rounded to nearest, ties to even. Magnitudes that are too large become
// infinity, or NaN in e4m3fn, as in PyTorch.
void narrow(const double* values, Dtype dtype, std::int64_t count, std::byte* out);

}  // namespace ttrace
