// The inner loops of the comparison, one for narrow types and one for fp64. They run on blocks
// that fit in the first-level cache. SIMD through Highway: the best instruction set of the machine is
// picked at run time, and all of them give the same bits (see narrow_kernel.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "numeric/dtype.h"

namespace ttrace {

// Elements in a block. fp32 partial sums are flushed to fp64 after each: that keeps the norm to 3e-8, as
// good as fp64 all the way; sums over 65,536 elements lose two digits.
inline constexpr std::int64_t kBlockElements = 2048;

inline constexpr std::size_t kLanes = 16;

// Partial sums: element i of a row belongs to lane i % kLanes, whatever the width of a vector.
struct LaneSums {
  using Lanes = std::array<double, kLanes>;
  Lanes reference_square{}, candidate_square{}, difference_square{};
  Lanes along{};  // (candidate - reference) * reference
};
double total_of(const LaneSums::Lanes& lanes);  // in a fixed order

// The counts that a block adds beside the sums. The two largest magnitudes are rounded to fp32
// by `add_narrow`.
struct BlockCounts {
  double max_difference = 0, max_reference = 0;
  std::int64_t differing = 0;
  std::int64_t reference_nan = 0, reference_inf = 0, candidate_nan = 0, candidate_inf = 0;
  std::int64_t nonfinite_mismatch = 0;
};

// True for fp32, fp16 and bf16 in any pairing, and for a type of one byte beside itself.
bool are_narrow(Dtype reference, Dtype candidate);

// One side of a block: the recorded elements, and the power of two that they are multiplied by.
struct NarrowBlock {
  const std::byte* data;
  Dtype dtype;
  float factor;
};

// Says how a block is cut into rows: every `width` elements; the last one may be shorter. `squares` holds, after a
// block was added, the sum of squared differences of each. Where a tensor's rows do not matter, a block is one row.
struct BlockRows {
  std::int64_t width = kBlockElements;
  double* squares = nullptr;
};

// Adds at most kBlockElements elements of types that `are_narrow`, in fp32. Returns false and adds nothing where fp32
// does not do: where elements are NaN or Inf, or squares overflow or vanish. The caller then uses `add_wide`.
bool add_narrow(const NarrowBlock& reference, const NarrowBlock& candidate, std::int64_t elements,
                const BlockRows& rows, LaneSums& sums, BlockCounts& counts);

// Adds any number of elements in fp64. NaN and Inf are left out of the sums and counted.
void add_wide(const double* reference, const double* candidate, std::int64_t elements, const BlockRows& rows,
              LaneSums& sums, BlockCounts& counts);

}  // namespace ttrace
