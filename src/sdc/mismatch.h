// Counts how two tensors that should have the same bits differ.
#pragma once

#include <cstddef>
#include <cstdint>

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
  double difference_square = 0, healthy_square = 0;  // over the elements that are finite on both sides

  double severity() const { return relative_count == 0 ? 0 : relative_sum / static_cast<double>(relative_count); }
};

// Compares two tensors of `elements` elements of `dtype`, which need not be aligned.
Mismatch mismatch_of(const std::byte* healthy, const std::byte* suspect, Dtype dtype, std::int64_t elements);

}  // namespace ttrace
