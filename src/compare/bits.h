// Compares the bits of pairs of logical tensors, of programs that compute the same ones however they lie on ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compare/compare.h"

namespace ttrace {

// Holds what was counted of a pair. A unit in the last place is a step to the next number of the dtype, so that zeros of
// either sign are none apart, and neither are two NaN.
struct BitDifference {
  // False where a side's elements are no recorded ones: sums of terms on several ranks, or multiples by a declared
  // factor. No rank has computed such a number, in whatever order, and the counts below are zero.
  bool recorded = true;
  bool other_dtypes = false;            // then all elements differ, by no number of units
  std::int64_t differing = 0;           // elements
  std::uint64_t most_units = 0;         // that one of them is away; 0 of integers
  std::vector<std::int64_t> index;      // of the first that is so far away; empty where none differs
  std::vector<std::int32_t> ranks;      // the candidate's that hold some of them, ascending
  std::vector<std::int32_t> of_copies;  // ranks whose copy has other bits than the first, on the candidate's side
};

// Returns one for each pair, for any number of threads the same. Of tensors that were recorded as sketches,
// `differences`, one a pair, say whether their bits are equal, and nothing how far they are apart.
std::vector<BitDifference> compare_bits(std::span<const TensorPair> pairs, std::span<const Difference> differences,
                                        int threads);

}  // namespace ttrace
