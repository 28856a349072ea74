// Sketches a cell at the speed of memory: each element is read once, its sign flipped by a bit of the table, and added
// to the sum of its lane. The lanes of a chunk are permuted when the cell is done, so that nothing is moved in the
// loop.
//
// fp16 and bf16 are added in fp32, a chunk (8 elements a lane) at a time, and chunks in fp64: of such elements 8 leave
// errors of 2^-24 of the sum, beside a dtype whose rounding is 2^-9 or 2^-12. fp32 is added in fp64. What that cannot
// do (NaN, Inf, squares that overflow or vanish in fp32) and fp64 is done again, or at once, by a plain loop.
//
// No multiply is fused with an add, and element i of a chunk belongs to lane i % 16 however wide vectors are.
#include "sketch/cell_kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "numeric/convert.h"
#include "numeric/simd_targets.h"
#include "sketch/signs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sketch/cell_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/narrow_types-inl.h"

#ifndef TTRACE_SKETCH_CELL_SUMS
#define TTRACE_SKETCH_CELL_SUMS
namespace ttrace {
// The lanes of a cell, in fp64, before they are permuted: by what they are permuted with.
struct alignas(64) CellLanes {
  std::array<std::array<double, kCellSums>, kCellSums> sums{};
  std::array<double, kCellSums> squares{};
  std::uint32_t largest = 0;  // bits of the largest magnitude, as fp32
};
}  // namespace ttrace
#endif

HWY_BEFORE_NAMESPACE();
namespace ttrace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kCellSums>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using Doubles = hn::CappedTag<double, kCellSums>;
using HalfFloats = hn::Rebind<float, Doubles>;
using HalfWords = hn::Rebind<std::uint32_t, HalfFloats>;

// Flips the signs of the lanes from `first` on, as `group` says; keeps the largest magnitude's bits.
template <class FloatTag>
HWY_INLINE hn::Vec<FloatTag> flip(FloatTag floats, hn::Vec<FloatTag> values, std::uint16_t group, std::size_t first,
                                  hn::Vec<hn::Rebind<std::uint32_t, FloatTag>>& largest) {
  const hn::Rebind<std::uint32_t, FloatTag> words;
  const auto top = hn::Set(words, 0x80000000u);
  const auto bits = hn::BitCast(words, values);
  largest = hn::Max(largest, hn::AndNot(top, bits));
  // Bit l of the group goes to the top of lane l.
  const auto places = hn::Sub(hn::Set(words, 31 - static_cast<std::uint32_t>(first)), hn::Iota(words, 0));
  const auto sign = hn::And(hn::Shl(hn::Set(words, group), places), top);
  return hn::BitCast(floats, hn::Xor(bits, sign));
}

template <class Type>
HWY_INLINE void add_narrow_chunk(const typename Type::Stored* data, std::size_t chunk, CellLanes& lanes) {
  constexpr std::size_t kVectors = kCellSums / hn::MaxLanes(Floats());
  hn::Vec<Floats> sums[kVectors], squares[kVectors];
  hn::Vec<Words> largest = hn::Zero(Words());
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = squares[v] = hn::Zero(Floats());
  for (std::size_t group = 0; group < kGroupsAChunk; ++group) {
    const std::uint16_t signs = kSignTable.signs[chunk * kGroupsAChunk + group];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t first = v * hn::MaxLanes(Floats());
      const auto values = Type::load(Floats(), data + group * kCellSums + first);
      sums[v] = hn::Add(sums[v], flip(Floats(), values, signs, first, largest));
      squares[v] = hn::Add(squares[v], hn::Mul(values, values));
    }
  }
  alignas(64) float lane_sums[kCellSums], lane_squares[kCellSums];
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(sums[v], Floats(), lane_sums + v * hn::MaxLanes(Floats()));
    hn::Store(squares[v], Floats(), lane_squares + v * hn::MaxLanes(Floats()));
  }
  double* const total = lanes.sums[kSignTable.lanes[chunk]].data();
  for (std::size_t l = 0; l < kCellSums; l += hn::MaxLanes(Doubles())) {
    const auto widen_lanes = [&](const float* from) {
      return hn::PromoteTo(Doubles(), hn::Load(HalfFloats(), from + l));
    };
    hn::StoreU(hn::Add(hn::LoadU(Doubles(), total + l), widen_lanes(lane_sums)), Doubles(), total + l);
    double* const square = lanes.squares.data() + l;
    hn::StoreU(hn::Add(hn::LoadU(Doubles(), square), widen_lanes(lane_squares)), Doubles(), square);
  }
  lanes.largest = std::max(lanes.largest, hn::GetLane(hn::MaxOfLanes(Words(), largest)));
}

HWY_INLINE void add_float_chunk(const float* data, std::size_t chunk, CellLanes& lanes) {
  constexpr std::size_t kVectors = kCellSums / hn::MaxLanes(Doubles());
  hn::Vec<Doubles> sums[kVectors], squares[kVectors];
  hn::Vec<HalfWords> largest = hn::Zero(HalfWords());
  for (std::size_t v = 0; v < kVectors; ++v) sums[v] = squares[v] = hn::Zero(Doubles());
  for (std::size_t group = 0; group < kGroupsAChunk; ++group) {
    const std::uint16_t signs = kSignTable.signs[chunk * kGroupsAChunk + group];
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t first = v * hn::MaxLanes(Doubles());
      const auto values = hn::LoadU(HalfFloats(), data + group * kCellSums + first);
      const auto flipped = hn::PromoteTo(Doubles(), flip(HalfFloats(), values, signs, first, largest));
      sums[v] = hn::Add(sums[v], flipped);
      squares[v] = hn::Add(squares[v], hn::Mul(flipped, flipped));
    }
  }
  double* const total = lanes.sums[kSignTable.lanes[chunk]].data();
  for (std::size_t v = 0; v < kVectors; ++v) {
    const std::size_t l = v * hn::MaxLanes(Doubles());
    hn::StoreU(hn::Add(hn::LoadU(Doubles(), total + l), sums[v]), Doubles(), total + l);
    double* const square = lanes.squares.data() + l;
    hn::StoreU(hn::Add(hn::LoadU(Doubles(), square), squares[v]), Doubles(), square);
  }
  lanes.largest = std::max(lanes.largest, hn::GetLane(hn::MaxOfLanes(HalfWords(), largest)));
}

void AddChunks(const std::byte* const* chunks, std::size_t count, Dtype dtype, CellLanes& lanes) {
  for (std::size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case Dtype::kBFloat16:
        add_narrow_chunk<BFloat16>(reinterpret_cast<const std::uint16_t*>(chunks[i]), i, lanes);
        break;
      case Dtype::kFloat16:
        add_narrow_chunk<Float16>(reinterpret_cast<const std::uint16_t*>(chunks[i]), i, lanes);
        break;
      default:
        add_float_chunk(reinterpret_cast<const float*>(chunks[i]), i, lanes);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace {

HWY_EXPORT(AddChunks);

namespace {

double total_of_lanes(const std::array<double, kCellSums>& lanes) {
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

// Adds in fp64, element by element, and leaves out what is not finite.
Cell sketch_any(std::span<const std::byte* const> chunks, Dtype dtype) {
  Cell cell;
  std::array<double, kCellSums> squares{};
  std::array<double, kChunkElements> values;
  for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    widen(chunks[chunk], dtype, kChunkElements, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        ++cell.nonfinite;
        continue;
      }
      const bool is_subtracted = kSignTable.signs[chunk * kGroupsAChunk + i / kCellSums] >> i % kCellSums & 1;
      cell.sums[(i % kCellSums) ^ kSignTable.lanes[chunk]] += is_subtracted ? -values[i] : values[i];
      squares[i % kCellSums] += values[i] * values[i];
      cell.largest = std::max(cell.largest, std::fabs(values[i]));
    }
  }
  cell.square = total_of_lanes(squares);
  return cell;
}

// Magnitudes whose squares, and sums of them, are normal numbers of fp32, or so far below the largest that they do not
// count.
bool suits_fp32(double largest) { return largest == 0 || (largest >= 0x1p-50 && largest <= 0x1p+58); }

}  // namespace

Cell sketch_chunks(std::span<const std::byte* const> chunks, Dtype dtype) {
  if (dtype == Dtype::kFloat64) return sketch_any(chunks, dtype);
  CellLanes lanes;
  HWY_DYNAMIC_DISPATCH(AddChunks)(chunks.data(), chunks.size(), dtype, lanes);
  const double largest = std::bit_cast<float>(lanes.largest);
  const bool is_finite = lanes.largest < 0x7f800000u;
  if (!is_finite || (dtype != Dtype::kFloat32 && !suits_fp32(largest))) return sketch_any(chunks, dtype);
  Cell cell;
  for (std::size_t permuted = 0; permuted < kCellSums; ++permuted) {
    for (std::size_t l = 0; l < kCellSums; ++l) cell.sums[l ^ permuted] += lanes.sums[permuted][l];
  }
  cell.square = total_of_lanes(lanes.squares);
  cell.largest = largest;
  return cell;
}

}  // namespace ttrace
#endif
