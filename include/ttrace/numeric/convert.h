// Widening of recorded elements, and rounding back to their dtype. The data need not be aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ttrace/numeric/dtype.h"

namespace ttrace {

// `count` elements as fp64: exact for every dtype, save that an int64 beyond 2^53 is rounded to nearest.
// NaN stays NaN, infinities stay infinities, subnormals and the sign of zero are kept.
void widen(const std::byte* data, Dtype dtype, std::int64_t count, double* out);

// `count` elements of an integer dtype or bool, exact.
void widen(const std::byte* data, Dtype dtype, std::int64_t count, std::int64_t* out);

// The inverse for a floating dtype: rounds `count` values to nearest, ties to even. What is too large becomes
// infinity, in e4m3fn NaN, as PyTorch converts.
void narrow(const double* values, Dtype dtype, std::int64_t count, std::byte* out);

}  // namespace ttrace
