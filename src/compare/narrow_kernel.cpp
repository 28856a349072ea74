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
  FloatVector largest, largest_reference, reference_factor, candidate_factor;
  std::size_t differing = 0;

  HWY_INLINE NarrowSums(float reference_times, float candidate_times)
      : largest(hn::Zero(Floats())),
        largest_reference(hn::Zero(Floats())),
        reference_factor(hn::Set(Floats(), reference_times)),
        candidate_factor(hn::Set(Floats(), candidate_times)) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      reference[v] = candidate[v] = difference[v] = along[v] = row[v] = hn::Zero(Floats());
    }
  }

  template <class Reference, class Candidate>
  HWY_INLINE void add(const typename Reference::Stored* a_data, const typename Candidate::Stored* b_data) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const FloatVector a = hn::Mul(Reference::load(Floats(), a_data + v * hn::MaxLanes(Floats())), reference_factor);
      const FloatVector b = hn::Mul(Candidate::load(Floats(), b_data + v * hn::MaxLanes(Floats())), candidate_factor);
      const FloatVector delta = hn::Sub(b, a);
      reference[v] = hn::Add(reference[v], hn::Mul(a, a));
      candidate[v] = hn::Add(candidate[v], hn::Mul(b, b));
      row[v] = hn::Add(row[v], hn::Mul(delta, delta));
      along[v] = hn::Add(along[v], hn::Mul(delta, a));
      largest = hn::Max(largest, hn::Abs(delta));
      largest_reference = hn::Max(largest_reference, hn::Abs(a));
      differing += hn::CountTrue(Floats(), hn::Ne(a, b));
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

  static HWY_INLINE void flush(const FloatVector* lanes, LaneSums::Lanes& sums) {
    float stage[kLanes];
    for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(lanes[v], Floats(), stage + v * hn::MaxLanes(Floats()));
    for (std::size_t i = 0; i < kLanes; ++i) sums[i] += static_cast<double>(stage[i]);
  }
};

template <class Reference, class Candidate>
HWY_NOINLINE bool add_narrow_as(const NarrowBlock& reference_side, const NarrowBlock& candidate_side,
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
      block.add<Reference, Candidate>(reference + i, candidate + i);
    }
    if (i < end) {
      A reference_tail[kLanes] = {};
      B candidate_tail[kLanes] = {};
      std::memcpy(reference_tail, reference + i, (end - i) * sizeof(A));
      std::memcpy(candidate_tail, candidate + i, (end - i) * sizeof(B));
      block.add<Reference, Candidate>(reference_tail, candidate_tail);
      i = end;
    }
    rows.squares[row] = block.end_row();
  }
  if (!block.all_moderate()) return false;
  const float largest = hn::GetLane(hn::MaxOfLanes(Floats(), block.largest));
  if (NarrowSums::largest_lane(block.difference) < kTooSmall && largest > 0) return false;
  if (NarrowSums::largest_lane(block.reference) < kTooSmall && !all_zero<Reference>(reference_side.data, elements))
    return false;
  if (NarrowSums::largest_lane(block.candidate) < kTooSmall && !all_zero<Candidate>(candidate_side.data, elements))
    return false;
  NarrowSums::flush(block.reference, sums.reference_square);
  NarrowSums::flush(block.candidate, sums.candidate_square);
  NarrowSums::flush(block.difference, sums.difference_square);
  NarrowSums::flush(block.along, sums.along);
  counts.max_difference = static_cast<double>(largest);
  counts.max_reference = static_cast<double>(hn::GetLane(hn::MaxOfLanes(Floats(), block.largest_reference)));
  counts.differing += static_cast<std::int64_t>(block.differing);
  return true;
}

// Of types with more than one byte, any two may meet.
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
