// Counts how two tensors that should have the same bits differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "numeric/dtype.h"

namespace ttrace {

// Sums are over the elements in order, in fp64.
struct Mismatch {
  std::int64_t elements = 0;
  std::int64_t differing = 0;  // elements whose bits differ: Mis of equation 1
  std::int64_t first = -1;     // the first of them, row-major; -1: none
  // The sum and number of |suspect - healthy| / |healthy| over the elements where it is finite and not 0: Avg!=0 of
  // equation 3.
  double relative_sum = 0;
  std::int64_t relative_count = 0;
  std::int64_t unbounded =
      0;  // elements that differ, where the quotient is not finite: healthy is 0, or one is NaN or Inf
  double difference_square = 0, healthy_square = 0;  // over the elements where what is squared is finite
  // Elements that differ, where suspect - healthy is not finite and they are not both NaN: no sum can hold them.
  std::int64_t nonfinite = 0;

  // Equation 5's ||suspect - healthy||^2: infinite where a difference is not finite.
  double noise_square() const { return nonfinite > 0 ? std::numeric_limits<double>::infinity() : difference_square; }
  double severity() const { return relative_count == 0 ? 0 : relative_sum / static_cast<double>(relative_count); }
};

// Compares two tensors of `elements` elements of `dtype`, which need not be aligned.
Mismatch mismatch_of(const std::byte* healthy, const std::byte* suspect, Dtype dtype, std::int64_t elements);

}  // namespace ttrace
