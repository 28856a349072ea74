// Widening of recorded elements. The data need not be aligned.
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

}  // namespace ttrace
