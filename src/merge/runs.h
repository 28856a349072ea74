// Visits the elements of a piece in runs along its last dimension.
#pragma once

#include <cstdint>

#include "base/alignment.h"

namespace ttrace {

// Calls `visit(local, stride, position, length)` for each run. Its first element is `local` in the rank's tensor, and
// the others follow `stride` apart. In the row-major tensor of shape `whole` they lie next to each other from
// `position` on.
template <class Visit>
void for_each_run(const Piece& piece, const Shape& whole, Visit visit) {
  const std::size_t dims = whole.size();
  const Shape size = dims == 0 ? Shape{1} : piece.logical.size;
  const std::int64_t length = size.back(), stride = dims == 0 ? 1 : piece.strides.back();
  if (element_count(size) == 0) return;
  Shape index(size.size(), 0);  // of the run's first element
  for (std::int64_t i = 0; i < element_count(size) / length; ++i) {
    std::int64_t local = piece.offset, position = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      local += index[d] * piece.strides[d];
      position = position * whole[d] + piece.logical.start[d] + index[d];
    }
    visit(local, stride, position, length);
    for (std::size_t d = size.size() - 1; d-- > 0 && ++index[d] == size[d];) index[d] = 0;
  }
}

}  // namespace ttrace
