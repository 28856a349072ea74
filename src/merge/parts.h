// Large tensors a part at a time, where their values are looked at as plain arrays.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/mapping.h"
#include "numeric/shape.h"

namespace ttrace {

// Calls `body` with boxes of about 2^18 elements that make up the shape, until it returns false; returns whether it never
// did. A box has whole rows of the first dimension.
template <class Body>
bool for_each_part(const Shape& shape, Body body) {
  constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 18;
  const std::int64_t rows = shape.empty() ? 1 : shape.front(), elements = element_count(shape);
  if (elements == 0) return true;
  const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce / (elements / rows));
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    Box part = whole_box(shape);
    if (!shape.empty()) {
      part.start[0] = begin;
      part.size[0] = std::min(at_once, rows - begin);
    }
    if (!body(part)) return false;
  }
  return true;
}

}  // namespace ttrace
