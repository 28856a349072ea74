// What a rank recorded, as boxes of its own tensor: all of it, or a fragment.
#pragma once

#include <span>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

// Elements of the rank's tensor: the first lies `offset` elements after the first recorded one.
struct HeldBox {
  Box box;
  std::int64_t offset = 0;
  Shape strides;  // in elements, by dimension of the box
};

// The rank's own tensor, of which the entry may be a fragment.
const Shape& own_shape(const Entry& entry);

// None of them empty.
std::vector<HeldBox> held_boxes(const Entry& entry);

// [begin, end) of the elements of `shape` in row-major order: at most 2 ndim - 1 boxes.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end);

// The boxes of several holders, sorted into layers: in each layer no element is held twice, and what a
// layer holds of an element the layers before it hold, too. Boxes are cut where they must be; `holder`
// is an index into `held`.
struct LayeredBox {
  HeldBox held;
  std::size_t holder = 0;
  std::int32_t layer = 0;
};
std::vector<LayeredBox> layer_boxes(const Shape& shape, std::span<const std::vector<HeldBox>> held);

}  // namespace ttrace
