#include "merge/region.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// The part of the piece inside of `box`, counted from the box's start; nothing where they share no element.
std::optional<Piece> cut(Piece piece, const Box& box) {
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    const std::int64_t begin = std::max(piece.logical.start[d], box.start[d]);
    const std::int64_t end = std::min(piece.logical.start[d] + piece.logical.size[d], box.start[d] + box.size[d]);
    if (begin >= end) return std::nullopt;
    piece.offset += (begin - piece.logical.start[d]) * piece.strides[d];
    piece.logical.start[d] = begin - box.start[d];
    piece.logical.size[d] = end - begin;
  }
  return piece;
}

}  // namespace

LogicalTensor region_of(const LogicalTensor& tensor, const Box& box) {
  LogicalTensor region = tensor;
  region.shape = box.size;
  region.pieces = [pieces = tensor.pieces, box] {
    std::vector<Piece> inside;
    for (Piece& piece : pieces()) {
      if (std::optional<Piece> part = cut(std::move(piece), box)) inside.push_back(std::move(*part));
    }
    return inside;
  };
  return region;
}

LogicalTensor held_rows_of(const LogicalTensor& tensor) {
  if (!tensor.rows) return tensor;
  LogicalTensor held = tensor;
  held.shape.at(0) = static_cast<std::int64_t>(tensor.rows->size());
  held.rows.reset();
  held.pieces = [pieces = tensor.pieces, rows = *tensor.rows] {
    std::vector<Piece> renumbered = pieces();
    for (Piece& piece : renumbered) {
      // Every row of a piece is held, so that they stay neighbours.
      const auto first = std::lower_bound(rows.begin(), rows.end(), piece.logical.start[0]);
      piece.logical.start[0] = first - rows.begin();
    }
    return renumbered;
  };
  return held;
}

}  // namespace ttrace
