// The dimensions of a logical tensor: which axes split each, and where the parts lie.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  std::optional<std::int64_t> unpadded;
  std::vector<std::int64_t> sizes;  // by part (`nest`); -1 where no rank holds it
  AxisLayout layout;                // by `lay_out`
  std::int32_t copies = 1;          // that several parts hold of one element, at most
};

// The dimensions of a tensor whose shards have `ndim`; all sizes are -1. `reference` is the shape of the
// reference's tensor, null where there is none. Throws InputError when the placement shards a dimension
// that is not there, or two axes say where one dimension's padding begins.
std::vector<Dimension> dimensions_of(const TensorPlacement& placement, const std::string& name, const Shape& shape,
                                     const Shape* reference);

// A part that nobody holds is taken to be as large as the first that somebody does, so that a finding
// can say where it would be. At least one size must be known. Throws LayoutError.
void lay_out(Dimension& dimension);

// The digits of a shard's index, and the part of a dimension that they choose.
std::vector<std::int64_t> digits_of(const Frame& frame, std::int64_t shard);
std::size_t part_of(const Dimension& dimension, const std::vector<std::int64_t>& digits);

// Of one part of every dimension, a box of local elements and where it lies in the logical tensor.
struct PlacedBox {
  Box local, logical;
  std::int32_t copy = 0;
};
// Every combination of a shard's stretches, as far as they lie in the box `within` of its elements.
std::vector<PlacedBox> boxes_of(const std::vector<Dimension>& dimensions, const std::vector<std::int64_t>& digits,
                                const Box& within);

Shape extents_of(const std::vector<Dimension>& dimensions);

}  // namespace ttrace
