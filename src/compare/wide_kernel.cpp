// The fp64 loop, for fp64 data, data that was widened for a scale or for several terms, and the blocks that the narrow
// loop refuses. It masks NaN and Inf out of the sums and counts them. Its lanes are those of narrow_kernel.cpp, so that
// it gives the same bits on every machine.

#include <algorithm>
#include <cstring>

#include "compare/kernel.h"
#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compare/wide_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ttrace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Half the lanes of the narrow loop, so that four sums fit in the registers of every instruction set.
using Doubles = hn::CappedTag<double, kLanes / 2>;
using DoubleVector = hn::Vec<Doubles>;

HWY_INLINE void count_nonfinite(DoubleVector a, DoubleVector b, BlockCounts& counts) {
  const auto count = [](auto mask) HWY_ATTR { return static_cast<std::int64_t>(hn::CountTrue(Doubles(), mask)); };
  const auto a_finite = hn::IsFinite(a), b_finite = hn::IsFinite(b);
  const auto a_nan = hn::IsNaN(a), b_nan = hn::IsNaN(b);
  const std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(Doubles()));
  counts.reference_nan += count(a_nan);
  counts.candidate_nan += count(b_nan);
  counts.reference_inf += lanes - count(a_finite) - count(a_nan);
  counts.candidate_inf += lanes - count(b_finite) - count(b_nan);
  const auto same = hn::Or(hn::Eq(a, b), hn::And(a_nan, b_nan));
  const std::int64_t mismatch = lanes - count(hn::Or(same, hn::And(a_finite, b_finite)));
  counts.nonfinite_mismatch += mismatch;
  counts.differing += mismatch;
}

struct WideSums {
  static constexpr std::size_t kVectors = kLanes / 2 / hn::MaxLanes(Doubles());
  DoubleVector reference[kVectors], candidate[kVectors], difference[kVectors], along[kVectors], row[kVectors];
  DoubleVector largest, largest_reference;

  HWY_INLINE WideSums() : largest(hn::Zero(Doubles())), largest_reference(hn::Zero(Doubles())) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      reference[v] = candidate[v] = difference[v] = along[v] = row[v] = hn::Zero(Doubles());
    }
  }

  HWY_INLINE void add(const double* a_data, const double* b_data, BlockCounts& counts) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      DoubleVector a = hn::LoadU(Doubles(), a_data + v * hn::MaxLanes(Doubles()));
      DoubleVector b = hn::LoadU(Doubles(), b_data + v * hn::MaxLanes(Doubles()));
      const auto finite = hn::And(hn::IsFinite(a), hn::IsFinite(b));
      if (!hn::AllTrue(Doubles(), finite)) {
        count_nonfinite(a, b, counts);
        a = hn::IfThenElseZero(finite, a);
        b = hn::IfThenElseZero(finite, b);
      }
      const DoubleVector delta = hn::Sub(b, a);
      reference[v] = hn::Add(reference[v], hn::Mul(a, a));
      candidate[v] = hn::Add(candidate[v], hn::Mul(b, b));
      row[v] = hn::Add(row[v], hn::Mul(delta, delta));
      along[v] = hn::Add(along[v], hn::Mul(delta, a));
      largest = hn::Max(largest, hn::Abs(delta));
      largest_reference = hn::Max(largest_reference, hn::Abs(a));
      counts.differing += static_cast<std::int64_t>(hn::CountTrue(Doubles(), hn::Ne(a, b)));
    }
  }

  // Adds the row's squares to the block's, and returns their sum.
  HWY_INLINE double end_row() {
    double stage[kLanes / 2];
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(row[v], Doubles(), stage + v * hn::MaxLanes(Doubles()));
      difference[v] = hn::Add(difference[v], row[v]);
      row[v] = hn::Zero(Doubles());
    }
    for (std::size_t half = kLanes / 4; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) stage[i] += stage[i + half];
    }
    return stage[0];
  }

  static HWY_INLINE void flush(const DoubleVector* lanes, LaneSums::Lanes& sums) {
    double stage[kLanes / 2];
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(lanes[v], Doubles(), stage + v * hn::MaxLanes(Doubles()));
    for (std::size_t i = 0; i < kLanes / 2; ++i) sums[i] += stage[i];
  }
};

void AddWide(const double* reference, const double* candidate, std::size_t elements, const BlockRows& rows,
             LaneSums& sums, BlockCounts& counts) {
  WideSums block;
  const std::size_t width = static_cast<std::size_t>(rows.width);
  std::size_t i = 0;
  for (std::size_t row = 0; i < elements; ++row) {
    const std::size_t end = std::min(i + width, elements);
    for (; i + kLanes / 2 <= end; i += kLanes / 2) block.add(reference + i, candidate + i, counts);
    if (i < end) {
      double reference_tail[kLanes / 2] = {}, candidate_tail[kLanes / 2] = {};
      std::memcpy(reference_tail, reference + i, (end - i) * sizeof(double));
      std::memcpy(candidate_tail, candidate + i, (end - i) * sizeof(double));
      block.add(reference_tail, candidate_tail, counts);
      i = end;
    }
    rows.squares[row] = block.end_row();
  }
  WideSums::flush(block.reference, sums.reference_square);
  WideSums::flush(block.candidate, sums.candidate_square);
  WideSums::flush(block.difference, sums.difference_square);
  WideSums::flush(block.along, sums.along);
  counts.max_difference = hn::GetLane(hn::MaxOfLanes(Doubles(), block.largest));
  counts.max_reference = hn::GetLane(hn::MaxOfLanes(Doubles(), block.largest_reference));
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {

HWY_EXPORT(AddWide);

void add_wide(const double* reference, const double* candidate, std::int64_t elements, const BlockRows& rows,
              LaneSums& sums, BlockCounts& counts) {
  HWY_DYNAMIC_DISPATCH(AddWide)(reference, candidate, static_cast<std::size_t>(elements), rows, sums, counts);
}

}  // namespace ttrace
#endif
