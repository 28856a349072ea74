// One pass over two blocks gives four sums (the squares of reference, candidate and difference, and the
// product of difference and reference), the squared difference of each row, the largest difference and reference, and
// the number of elements that differ.
//
// Narrow types (fp32, fp16, bf16, and those of one byte) are widened to fp32 in registers and summed in fp32 lanes. Of
// integers of one byte all sums of a block are exact: a lane adds up 128 products, each below 2^16. fp32 squares are
// fine for most data, but not for all: above 1.8e19 they overflow, below 1e-19 they lose bits and at 1e-23 they vanish;
// and NaN or Inf spoil every sum. The loop looks for none of this. It looks at the sums afterwards, which is cheap:
//   - NaN, Inf and overflow leave some lane of some sum NaN, infinite or huge;
//   - an element's square is off by at most 2^-150 through underflow, 2048 of them by 2^-139. A lane with
//     a sum of 2^-100 or more shows that this is below the rounding of the sum itself. Where no lane has
//     that much, either all elements are exactly zero or the block is refused.
// A refused block is done again by `add_wide`, in fp64 with masks, at a third of the speed.
//
// The same bits on every machine: element i of a row goes to lane i % kLanes however many vectors make up the
// lanes, the lanes of a row are added up as a tree of fixed shape, and no multiply is fused with an add, since not
// every instruction set can. (Memory is the limit, not arithmetic: fusing gains nothing.) The largest difference and
// the counts do not depend on order.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "compare/kernel.h"
#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compare/narrow_kernel.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/narrow_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttrace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kLanes>;
using FloatVector = hn::Vec<Floats>;
using Counts = hn::RebindToSigned<Floats>;

template <class Type>
HWY_INLINE bool all_zero(const std::byte* data, std::size_t elements) {
  bool zero = true;
  for (std::size_t i = 0; i < elements; ++i) {
    typename Type::Bits bits;
    std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
    zero &= static_cast<typename Type::Bits>(bits << 1) == 0;  // without the sign
  }
  return zero;
}

constexpr float kTooLarge = 0x1p120f;
constexpr float kTooSmall = 0x1p-100f;
// 2 KiB ahead of the loop on each side: worth 20 % and more on mapped data.
constexpr std::size_t kPrefetchBytes = 2048;

struct NarrowSums {
  static constexpr std::size_t kVectors = kLanes / hn::MaxLanes(Floats());
  FloatVector reference[kVectors], candidate[kVectors], difference[kVectors], along[kVectors], row[kVectors];
  hn::Vec<Counts> differing[kVectors];
  FloatVector largest_square, largest_reference_square, reference_factor, candidate_factor;

  HWY_INLINE NarrowSums(float reference_times, float candidate_times)
      : largest_square(hn::Zero(Floats())),
        largest_reference_square(hn::Zero(Floats())),
        reference_factor(hn::Set(Floats(), reference_times)),
        candidate_factor(hn::Set(Floats(), candidate_times)) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      reference[v] = candidate[v] = difference[v] = along[v] = row[v] = hn::Zero(Floats());
      differing[v] = hn::Zero(Counts());
    }
  }

  // The four products are the limit here. Hence the largest magnitudes are kept as squares, and nothing is multiplied by
  // factors of 1.
  template <class Reference, class Candidate, bool kScaled>
  HWY_INLINE void add(const typename Reference::Stored* a_data, const typename Candidate::Stored* b_data) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      FloatVector a = Reference::load(Floats(), a_data + v * hn::MaxLanes(Floats()));
      FloatVector b = Candidate::load(Floats(), b_data + v * hn::MaxLanes(Floats()));
      if constexpr (kScaled) {
        a = hn::Mul(a, reference_factor);
        b = hn::Mul(b, candidate_factor);
      }
      const FloatVector delta = hn::Sub(b, a);
      const FloatVector a_square = hn::Mul(a, a), delta_square = hn::Mul(delta, delta);
      reference[v] = hn::Add(reference[v], a_square);
      candidate[v] = hn::Add(candidate[v], hn::Mul(b, b));
      row[v] = hn::Add(row[v], delta_square);
      along[v] = hn::Add(along[v], hn::Mul(delta, a));
      largest_square = hn::Max(largest_square, delta_square);
      largest_reference_square = hn::Max(largest_reference_square, a_square);
      const auto differs = hn::RebindMask(Counts(), hn::Ne(a, b));
      differing[v] = hn::IfThenElse(differs, hn::Add(differing[v], hn::Set(Counts(), 1)), differing[v]);
    }
  }

  // Adds the row's squares to the block's, and returns their sum.
  HWY_INLINE double end_row() {
    float stage[kLanes];
    for (std::size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(row[v], Floats(), stage + v * hn::MaxLanes(Floats()));
      difference[v] = hn::Add(difference[v], row[v]);
      row[v] = hn::Zero(Floats());
    }
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) stage[i] += stage[i + half];
    }
    return static_cast<double>(stage[0]);
  }

  static HWY_INLINE float largest_lane(const FloatVector* lanes) {
    FloatVector most = lanes[0];
    for (std::size_t v = 1; v < kVectors; ++v) most = hn::Max(most, lanes[v]);
    return hn::GetLane(hn::MaxOfLanes(Floats(), most));
  }

  // True where all sums are below the limit; false for NaN as well.
  HWY_INLINE bool all_moderate() const {
    const FloatVector limit = hn::Set(Floats(), kTooLarge);
    bool moderate = true;
    for (std::size_t v = 0; v < kVectors; ++v) {
      moderate &= hn::AllTrue(Floats(), hn::And(hn::And(hn::Lt(reference[v], limit), hn::Lt(candidate[v], limit)),
                                                hn::Lt(difference[v], limit)));
    }
    return moderate;
  }

  HWY_INLINE std::int64_t differing_elements() const {
    std::int64_t sum = 0;
    for (std::size_t v = 0; v < kVectors; ++v) sum += hn::GetLane(hn::SumOfLanes(Counts(), differing[v]));
    return sum;
  }

  // The root of an fp32 square that was rounded is the number itself, unless the square is tiny or infinite: a block
  // with such is refused.
  static HWY_INLINE double largest_magnitude(FloatVector squares) {
    return static_cast<double>(std::sqrt(hn::GetLane(hn::MaxOfLanes(Floats(), squares))));
  }

  static HWY_INLINE void flush(const FloatVector* lanes, LaneSums::Lanes& sums) {
    float stage[kLanes];
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(lanes[v], Floats(), stage + v * hn::MaxLanes(Floats()));
    for (std::size_t i = 0; i < kLanes; ++i) sums[i] += static_cast<double>(stage[i]);
  }
};

template <class Reference, class Candidate, bool kScaled>
HWY_NOINLINE bool add_narrow_scaled(const NarrowBlock& reference_side, const NarrowBlock& candidate_side,
                                    std::size_t elements, const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  using A = typename Reference::Stored;
  using B = typename Candidate::Stored;
  const A* reference = reinterpret_cast<const A*>(reference_side.data);
  const B* candidate = reinterpret_cast<const B*>(candidate_side.data);
  NarrowSums block(reference_side.factor, candidate_side.factor);
  const std::size_t width = static_cast<std::size_t>(rows.width);
  std::size_t i = 0;
  for (std::size_t row = 0; i < elements; ++row) {
    const std::size_t end = std::min(i + width, elements);
    for (; i + kLanes <= end; i += kLanes) {
      hwy::Prefetch(reference_side.data + i * sizeof(A) + kPrefetchBytes);
      hwy::Prefetch(candidate_side.data + i * sizeof(B) + kPrefetchBytes);
      block.add<Reference, Candidate, kScaled>(reference + i, candidate + i);
    }
    if (i < end) {
      A reference_tail[kLanes] = {};
      B candidate_tail[kLanes] = {};
      std::memcpy(reference_tail, reference + i, (end - i) * sizeof(A));
      std::memcpy(candidate_tail, candidate + i, (end - i) * sizeof(B));
      block.add<Reference, Candidate, kScaled>(reference_tail, candidate_tail);
      i = end;
    }
    rows.squares[row] = block.end_row();
  }
  if (!block.all_moderate()) return false;
  const std::int64_t differing = block.differing_elements();
  if (NarrowSums::largest_lane(block.difference) < kTooSmall && differing > 0) return false;
  if (NarrowSums::largest_lane(block.reference) < kTooSmall && !all_zero<Reference>(reference_side.data, elements))
    return false;
  if (NarrowSums::largest_lane(block.candidate) < kTooSmall && !all_zero<Candidate>(candidate_side.data, elements))
    return false;
  NarrowSums::flush(block.reference, sums.reference_square);
  NarrowSums::flush(block.candidate, sums.candidate_square);
  NarrowSums::flush(block.difference, sums.difference_square);
  NarrowSums::flush(block.along, sums.along);
  counts.max_difference = NarrowSums::largest_magnitude(block.largest_square);
  counts.max_reference = NarrowSums::largest_magnitude(block.largest_reference_square);
  counts.differing += differing;
  return true;
}

template <class Reference, class Candidate>
bool add_narrow_as(const NarrowBlock& reference, const NarrowBlock& candidate, std::size_t elements,
                   const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  const bool scaled = reference.factor != 1 || candidate.factor != 1;
  return scaled ? add_narrow_scaled<Reference, Candidate, true>(reference, candidate, elements, rows, sums, counts)
                : add_narrow_scaled<Reference, Candidate, false>(reference, candidate, elements, rows, sums, counts);
}

// Any two types with more than one byte may meet.
template <class Reference>
bool add_narrow_to(const NarrowBlock& reference, const NarrowBlock& candidate, std::size_t elements,
                   const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  switch (candidate.dtype) {
    case Dtype::kFloat32:
      return add_narrow_as<Reference, Float32>(reference, candidate, elements, rows, sums, counts);
    case Dtype::kBFloat16:
      return add_narrow_as<Reference, BFloat16>(reference, candidate, elements, rows, sums, counts);
    default:
      return add_narrow_as<Reference, Float16>(reference, candidate, elements, rows, sums, counts);
  }
}

bool AddNarrow(const NarrowBlock& reference, const NarrowBlock& candidate, std::size_t elements, const BlockRows& rows,
               LaneSums& sums, BlockCounts& counts) {
  switch (reference.dtype) {
    case Dtype::kFloat32:
      return add_narrow_to<Float32>(reference, candidate, elements, rows, sums, counts);
    case Dtype::kBFloat16:
      return add_narrow_to<BFloat16>(reference, candidate, elements, rows, sums, counts);
    case Dtype::kFloat16:
      return add_narrow_to<Float16>(reference, candidate, elements, rows, sums, counts);
    case Dtype::kFloat8E4M3:
      return add_narrow_as<Float8E4M3, Float8E4M3>(reference, candidate, elements, rows, sums, counts);
    case Dtype::kFloat8E5M2:
      return add_narrow_as<Float8E5M2, Float8E5M2>(reference, candidate, elements, rows, sums, counts);
    case Dtype::kInt8:
      return add_narrow_as<Int8, Int8>(reference, candidate, elements, rows, sums, counts);
    default:
      return add_narrow_as<UInt8, UInt8>(reference, candidate, elements, rows, sums, counts);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {

HWY_EXPORT(AddNarrow);

double total_of(const LaneSums::Lanes& lanes) {
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

bool are_narrow(Dtype reference, Dtype candidate) {
  const auto is_one = [](Dtype dtype) {
    return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
  };
  return size_of(reference) == 1 ? reference == candidate : is_one(reference) && is_one(candidate);
}

bool add_narrow(const NarrowBlock& reference, const NarrowBlock& candidate, std::int64_t elements,
                const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  assert(are_narrow(reference.dtype, candidate.dtype) && elements <= kBlockElements);
  return HWY_DYNAMIC_DISPATCH(AddNarrow)(reference, candidate, static_cast<std::size_t>(elements), rows, sums, counts);
}

}  // namespace ttrace
#endif
