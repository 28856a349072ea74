// Describes what a rank recorded as boxes of its own tensor: all of the tensor, or a fragment of it.
#pragma once

#include <span>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// A box of the rank's own tensor. Its first element lies `offset` elements after the first recorded one.
struct HeldBox {
  Box box;
  std::int64_t offset = 0;
  Shape strides;  // in elements, by dimension of the box
};

// The shape of the rank's own tensor, of which the entry may be a fragment.
const Shape& own_shape(const Entry& entry);

// The boxes that the entry holds; none of them is empty.
std::vector<HeldBox> held_boxes(const Entry& entry);

// The elements [begin, end) of `shape`, in row-major order, as at most 2 ndim - 1 boxes.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end);

// A box of one of several holders; `holder` is an index into `held`.
struct LayeredBox {
  HeldBox held;
  std::size_t holder = 0;
  std::int32_t layer = 0;
};

// Sorts the boxes of several holders into layers, and cuts them where it must. No layer holds an element twice, and an
// element that is in a layer is in all layers before it.
std::vector<LayeredBox> layer_boxes(const Shape& shape, std::span<const std::vector<HeldBox>> held);

}  // namespace ttrace
