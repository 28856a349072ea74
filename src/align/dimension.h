// The dimensions of a logical tensor: which axes split each, and where the parts lie.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "align/frame.h"
#include "align/placement.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

struct Dimension {
  std::vector<std::size_t> digits;  // of the frame's shard digits, outermost first
  std::vector<AxisSplit> splits;    // the same axes
  std::vector<std::int64_t> sizes;  // by part (`nest`); -1 where no rank holds it
  AxisLayout layout;                // by `lay_out`
};

// The dimensions of a tensor whose shards have as many as `shape`; all sizes are -1. Throws InputError
// when the placement shards one that is not there.
std::vector<Dimension> dimensions_of(const Annotations& annotations, const TensorPlacement& placement,
                                     const std::string& name, const Shape& shape);

// A part that nobody holds is taken to be as large as the first that somebody does, so that a finding
// can say where it would be. At least one size must be known.
void lay_out(Dimension& dimension);

// The digits of a shard's index, and the part of a dimension that they choose.
std::vector<std::int64_t> digits_of(const Frame& frame, std::int64_t shard);
std::size_t part_of(const Dimension& dimension, const std::vector<std::int64_t>& digits);

// The pairs (local box, logical box) of a shard: every combination of its stretches.
std::vector<std::pair<Box, Box>> boxes_of(const std::vector<Dimension>& dimensions,
                                          const std::vector<std::int64_t>& digits);

}  // namespace ttrace
