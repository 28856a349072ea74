#include "compare/box.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "ttrace/error.h"

namespace ttrace {
namespace {

// Shorter runs are gathered into full blocks: the copy costs less than a loop that ends all the time.
constexpr std::int64_t kShortRun = 512;

using WideBlock = std::array<double, kBlockElements>;
using IntegerBlock = std::array<std::int64_t, kBlockElements>;

struct Scales {
  double reference = 1, candidate = 1;
};

// A power of two whose inverse leaves fp32 values exact, unless they are tiny.
bool is_exact_scale(double scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5 && std::abs(exponent) < 32;
}

Arithmetic arithmetic_for(const Rows& rows, Scales scales) {
  if (rows.reference_terms() != 1 || rows.terms() != 2) return Arithmetic::kWide;
  const bool exact = is_exact_scale(scales.reference) && is_exact_scale(scales.candidate);
  if (exact && is_narrow(rows.dtype(0)) && is_narrow(rows.dtype(1))) return Arithmetic::kNarrow;
  const bool recorded = scales.reference == 1 && scales.candidate == 1;
  const bool integers = !is_floating(rows.dtype(0)) && !is_floating(rows.dtype(1));
  return recorded && integers ? Arithmetic::kInteger : Arithmetic::kWide;
}

// |a - b|, exact as an integer, then rounded to fp64.
double distance(std::int64_t a, std::int64_t b) {
  const auto larger = static_cast<std::uint64_t>(std::max(a, b)), smaller = static_cast<std::uint64_t>(std::min(a, b));
  return static_cast<double>(larger - smaller);
}

bool add_narrow_block(const Rows& rows, Scales scales, std::int64_t position, std::int64_t count, LaneSums& sums,
                      BlockCounts& counts) {
  std::array<std::byte, kBlockElements * sizeof(float)> gathered[2];
  NarrowBlock sides[2] = {{nullptr, rows.dtype(0), static_cast<float>(1 / scales.reference)},
                          {nullptr, rows.dtype(1), static_cast<float>(1 / scales.candidate)}};
  for (std::size_t side : {0, 1}) {
    if (count <= rows.left_in_run(position)) {
      sides[side].data = rows.at(side, position);
    } else {
      rows.gather(side, position, count, gathered[side].data());
      sides[side].data = gathered[side].data();
    }
  }
  return add_narrow(sides[0], sides[1], count, sums, counts);
}

void gather_wide(const Rows& rows, Scales scales, std::int64_t position, std::int64_t count, WideBlock& reference,
                 WideBlock& candidate) {
  rows.gather_sum(0, rows.reference_terms(), scales.reference, position, count, reference.data());
  rows.gather_sum(rows.reference_terms(), rows.terms(), scales.candidate, position, count, candidate.data());
}

void add_wide_block(const Rows& rows, Scales scales, std::int64_t position, std::int64_t count, LaneSums& sums,
                    BlockCounts& counts) {
  WideBlock reference, candidate;
  gather_wide(rows, scales, position, count, reference, candidate);
  add_wide(reference.data(), candidate.data(), count, sums, counts);
}

void add_integer_block(const Rows& rows, std::int64_t position, std::int64_t count, LaneSums& sums,
                       BlockCounts& counts) {
  IntegerBlock reference, candidate;
  rows.gather_integers(0, position, count, reference.data());
  rows.gather_integers(1, position, count, candidate.data());
  counts.max_difference = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const double a = static_cast<double>(reference[i]), b = static_cast<double>(candidate[i]);
    const double delta = distance(reference[i], candidate[i]);
    sums.reference_square[i % kLanes] += a * a;
    sums.candidate_square[i % kLanes] += b * b;
    sums.difference_square[i % kLanes] += delta * delta;
    sums.dot[i % kLanes] += a * b;
    counts.differing += reference[i] != candidate[i];
    counts.max_difference = std::max(counts.max_difference, delta);
  }
}

// Returns the arithmetic that was used.
Arithmetic add_block(const Rows& rows, Arithmetic arithmetic, Scales scales, std::int64_t position, std::int64_t count,
                     LaneSums& sums, BlockCounts& counts) {
  if (arithmetic == Arithmetic::kInteger) {
    add_integer_block(rows, position, count, sums, counts);
    return arithmetic;
  }
  if (arithmetic == Arithmetic::kNarrow && add_narrow_block(rows, scales, position, count, sums, counts)) {
    return arithmetic;
  }
  add_wide_block(rows, scales, position, count, sums, counts);
  return Arithmetic::kWide;
}

}  // namespace

BoxDifference measure_box(const OverlayBox& box, double reference_scale, double candidate_scale) {
  const Rows rows(box);
  const Scales scales{reference_scale, candidate_scale};
  const Arithmetic arithmetic = arithmetic_for(rows, scales);
  BoxDifference result;
  LaneSums sums;
  for (std::int64_t position = 0; position < rows.elements();) {
    std::int64_t count = std::min(kBlockElements, rows.elements() - position);
    if (rows.run() >= kShortRun) count = std::min(count, rows.left_in_run(position));
    const Arithmetic used = add_block(rows, arithmetic, scales, position, count, sums, result.counts);
    if (result.counts.max_difference > result.largest.difference) {
      result.largest = {result.counts.max_difference, position, count, used};
    }
    position += count;
  }
  result.elements = rows.elements();
  result.reference_square = total_of(sums.reference_square);
  result.candidate_square = total_of(sums.candidate_square);
  result.difference_square = total_of(sums.difference_square);
  result.dot = total_of(sums.dot);
  return result;
}

WorstElement find_worst(const OverlayBox& box, const LargestBlock& block, double reference_scale,
                        double candidate_scale) {
  const Rows rows(box);
  WideBlock reference, candidate;
  gather_wide(rows, {reference_scale, candidate_scale}, block.position, block.elements, reference, candidate);
  IntegerBlock reference_integers, candidate_integers;
  if (block.arithmetic == Arithmetic::kInteger) {
    rows.gather_integers(0, block.position, block.elements, reference_integers.data());
    rows.gather_integers(1, block.position, block.elements, candidate_integers.data());
  }
  const auto difference_at = [&](std::size_t i) -> double {
    switch (block.arithmetic) {
      case Arithmetic::kNarrow:
        return std::fabs(static_cast<float>(reference[i]) - static_cast<float>(candidate[i]));
      case Arithmetic::kInteger:
        return distance(reference_integers[i], candidate_integers[i]);
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
  const Rows rows(box);
  if (rows.reference_terms() != 1 || rows.terms() != 2 || rows.dtype(0) != rows.dtype(1)) return false;
  for (std::int64_t position = 0; position < rows.elements(); position += rows.run()) {
    const auto bytes = static_cast<std::size_t>(rows.run() * size_of(rows.dtype(0)));
    if (std::memcmp(rows.at(0, position), rows.at(1, position), bytes) != 0) return false;
  }
  return true;
}

}  // namespace ttrace
