// The rounding of floating dtypes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/trace.h"

namespace ttrace {

struct Rounding {
  explicit Rounding(Dtype dtype) : half_epsilon(epsilon_of(dtype) / 2) {
    const int smallest = dtype == Dtype::kFloat64      ? -1022
                         : dtype == Dtype::kFloat16    ? -14
                         : dtype == Dtype::kFloat8E4M3 ? -6
                         : dtype == Dtype::kFloat8E5M2 ? -14
                                                       : -126;
    smallest_normal = std::ldexp(1.0, smallest);
  }

  // Half of the distance between two neighbours at `magnitude`.
  double half_ulp(double magnitude) const {
    const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) & 0x7ff0000000000000u);
    return std::max(power, smallest_normal) * half_epsilon;
  }

  // Rounds `value`, finite, to the nearest number of a dtype narrower than fp32; of two the even one. None is too
  // large.
  double rounded(double value) const {
    // Added to a number whose last place is that of the dtype at `value`.
    const double large = half_ulp(std::abs(value)) * 0x1.8p53;
    return (value + large) - large;
  }

  double half_epsilon, smallest_normal;
};

}  // namespace ttrace
