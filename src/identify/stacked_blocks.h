// Blocks that lie one behind the other in a dimension of a parameter, each split over an axis by itself: query, key and
// value in one matrix, gate and up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// An entry and where its elements lie.
struct RecordedElements {
  const Entry* entry = nullptr;
  const std::byte* data = nullptr;
};

// The sizes of the blocks in one part, without a common factor, where the bits of `part`, of this coordinate among equal
// parts along `dim`, are those of the rows of `whole` that the layout `stacked` gives it. One block: the parts lie one
// behind the other. Empty where the bits tell neither: rows that occur twice, or that `whole` does not have.
std::vector<std::int64_t> blocks_by_bits(const RecordedElements& part, const RecordedElements& whole,
                                         std::int64_t coordinate, std::size_t dim);

}  // namespace ttrace
