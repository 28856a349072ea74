#include "compare/box.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace ttrace {
namespace {

// Runs of fewer elements are gathered into full blocks: the copy costs less than starting the loop again for each run.
constexpr std::int64_t kShortRun = 512;

using WideBlock = std::array<double, kBlockElements>;
using IntegerBlock = std::array<std::int64_t, kBlockElements>;

struct Scales {
  double reference = 1, candidate = 1;
};

// True for a power of two by which an fp32 value can be divided exactly, unless the value is tiny.
bool is_exact_scale(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5 && std::abs(exponent) < 32;
}

Arithmetic arithmetic_for(const BoxReader& reader, Scales scales) {
  if (reader.reference_terms() != 1 || reader.terms() != 2) return Arithmetic::kWide;
  const bool exact = is_exact_scale(scales.reference) && is_exact_scale(scales.candidate);
  if (exact && are_narrow(reader.dtype(0), reader.dtype(1))) return Arithmetic::kNarrow;
  const bool recorded = scales.reference == 1 && scales.candidate == 1;
  const bool integers = !is_floating(reader.dtype(0)) && !is_floating(reader.dtype(1));
  // Shorter integers are exact in fp64, and so are their differences.
  const bool long_ones = reader.dtype(0) == Dtype::kInt64 || reader.dtype(1) == Dtype::kInt64;
  return recorded && integers && long_ones ? Arithmetic::kInteger : Arithmetic::kWide;
}

// Computes |a - b| exactly as an integer, and rounds it to fp64.
double integer_distance(std::int64_t a, std::int64_t b) {
  const auto larger = static_cast<std::uint64_t>(std::max(a, b)), smaller = static_cast<std::uint64_t>(std::min(a, b));
  return static_cast<double>(larger - smaller);
}

bool add_narrow_block(const BoxReader& reader, Scales scales, std::int64_t position, std::int64_t count,
                      const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  std::array<std::byte, kBlockElements * sizeof(float)> gathered[2];
  NarrowBlock sides[2] = {{nullptr, reader.dtype(0), static_cast<float>(1 / scales.reference)},
                          {nullptr, reader.dtype(1), static_cast<float>(1 / scales.candidate)}};
  for (std::size_t side : {0, 1}) {
    if (count <= reader.left_in_run(position)) {
      sides[side].data = reader.address_of(side, position);
    } else {
      reader.gather(side, position, count, gathered[side].data());
      sides[side].data = gathered[side].data();
    }
  }
  return add_narrow(sides[0], sides[1], count, rows, sums, counts);
}

void gather_wide(const BoxReader& reader, Scales scales, std::int64_t position, std::int64_t count,
                 WideBlock& reference, WideBlock& candidate) {
  reader.gather_sum(0, reader.reference_terms(), scales.reference, position, count, reference.data());
  reader.gather_sum(reader.reference_terms(), reader.terms(), scales.candidate, position, count, candidate.data());
}

void add_wide_block(const BoxReader& reader, Scales scales, std::int64_t position, std::int64_t count,
                    const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  WideBlock reference, candidate;
  gather_wide(reader, scales, position, count, reference, candidate);
  add_wide(reference.data(), candidate.data(), count, rows, sums, counts);
}

void add_integer_block(const BoxReader& reader, std::int64_t position, std::int64_t count, LaneSums& sums,
                       BlockCounts& counts) {
  IntegerBlock reference, candidate;
  reader.gather_integers(0, position, count, reference.data());
  reader.gather_integers(1, position, count, candidate.data());
  counts.max_difference = counts.max_reference = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const double a = static_cast<double>(reference[i]), b = static_cast<double>(candidate[i]);
    const double delta = integer_distance(reference[i], candidate[i]);
    sums.reference_square[i % kLanes] += a * a;
    sums.candidate_square[i % kLanes] += b * b;
    sums.difference_square[i % kLanes] += delta * delta;
    sums.along[i % kLanes] += (b - a) * a;
    counts.differing += reference[i] != candidate[i];
    counts.max_difference = std::max(counts.max_difference, delta);
    counts.max_reference = std::max(counts.max_reference, std::fabs(a));
  }
}

// Adds a block in `arithmetic`, or in fp64 where fp32 does not do. Returns the arithmetic that was used.
Arithmetic add_block(const BoxReader& reader, Arithmetic arithmetic, Scales scales, std::int64_t position,
                     std::int64_t count, const BlockRows& rows, LaneSums& sums, BlockCounts& counts) {
  if (arithmetic == Arithmetic::kInteger) {
    add_integer_block(reader, position, count, sums, counts);
    return arithmetic;
  }
  if (arithmetic == Arithmetic::kNarrow && add_narrow_block(reader, scales, position, count, rows, sums, counts)) {
    return arithmetic;
  }
  add_wide_block(reader, scales, position, count, rows, sums, counts);
  return Arithmetic::kWide;
}

// Says how many elements the block at `position` has. With rows of `width`, it is several whole ones, or a part of one.
std::int64_t block_length(const BoxReader& reader, std::int64_t width, std::int64_t position) {
  std::int64_t count = std::min(kBlockElements, reader.elements() - position);
  if (reader.run_length() >= kShortRun) count = std::min(count, reader.left_in_run(position));
  if (width == 0) return count;
  return width <= count ? count - count % width : std::min(count, width - position % width);
}

}  // namespace

BoxDifference measure_box(const OverlayBox& box, double reference_scale, double candidate_scale, BoxRows rows) {
  const BoxReader reader(box);
  const std::int64_t width = rows == BoxRows::kYes ? box.logical.size.back() : 0;
  std::array<double, kBlockElements> squares;
  const Scales scales{reference_scale, candidate_scale};
  const Arithmetic arithmetic = arithmetic_for(reader, scales);
  BoxDifference result;
  if (width > 0) result.row_squares.resize(static_cast<std::size_t>(reader.elements() / width));
  LaneSums sums;
  for (std::int64_t position = 0; position < reader.elements();) {
    const std::int64_t count = block_length(reader, width, position);
    const BlockRows cut{width == 0 ? count : std::min(width, count), squares.data()};
    const Arithmetic used = add_block(reader, arithmetic, scales, position, count, cut, sums, result.counts);
    for (std::int64_t i = 0; width > 0 && i * cut.width < count; ++i) {
      result.row_squares[static_cast<std::size_t>(position / width + i)] += squares[static_cast<std::size_t>(i)];
    }
    result.reference_max_abs = std::max(result.reference_max_abs, result.counts.max_reference);
    if (result.counts.max_difference > result.largest.difference) {
      result.largest = {result.counts.max_difference, position, count, used};
    }
    position += count;
  }
  result.elements = reader.elements();
  result.reference_square = total_of(sums.reference_square);
  result.candidate_square = total_of(sums.candidate_square);
  result.difference_square = total_of(sums.difference_square);
  result.along = total_of(sums.along);
  return result;
}

WorstElement find_worst(const OverlayBox& box, const LargestBlock& block, double reference_scale,
                        double candidate_scale) {
  const BoxReader reader(box);
  WideBlock reference, candidate;
  gather_wide(reader, {reference_scale, candidate_scale}, block.position, block.elements, reference, candidate);
  IntegerBlock reference_integers, candidate_integers;
  if (block.arithmetic == Arithmetic::kInteger) {
    reader.gather_integers(0, block.position, block.elements, reference_integers.data());
    reader.gather_integers(1, block.position, block.elements, candidate_integers.data());
  }
  const auto difference_at = [&](std::size_t i) -> double {
    switch (block.arithmetic) {
      case Arithmetic::kNarrow:
        return std::fabs(static_cast<float>(reference[i]) - static_cast<float>(candidate[i]));
      case Arithmetic::kInteger:
        return integer_distance(reference_integers[i], candidate_integers[i]);
      default:
        return std::fabs(reference[i] - candidate[i]);
    }
  };
  std::size_t i = 0;
  while (i < static_cast<std::size_t>(block.elements) && difference_at(i) != block.difference) ++i;
  if (i == static_cast<std::size_t>(block.elements)) {
    throw InputError("trace: a tensor's bytes changed while they were compared; is a recorder still writing to it?");
  }
  const double max_abs =
      block.arithmetic == Arithmetic::kInteger ? block.difference : std::fabs(reference[i] - candidate[i]);
  return {block.position + static_cast<std::int64_t>(i), reference[i], candidate[i], max_abs};
}

bool same_bytes(const OverlayBox& box) {
  const BoxReader reader(box);
  if (reader.reference_terms() != 1 || reader.terms() != 2 || reader.dtype(0) != reader.dtype(1)) return false;
  for (std::int64_t position = 0; position < reader.elements(); position += reader.run_length()) {
    const auto bytes = static_cast<std::size_t>(reader.run_length() * size_of(reader.dtype(0)));
    if (std::memcmp(reader.address_of(0, position), reader.address_of(1, position), bytes) != 0) return false;
  }
  return true;
}

}  // namespace ttrace
