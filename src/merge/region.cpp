#include "merge/region.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// The part of the piece inside of `box`, counted from the box's start; nothing where they share no element.
std::optional<Piece> cut(Piece piece, const Box& box) {
  const std::optional<Box> common = common_part(piece.logical, box);
  if (!common) return std::nullopt;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    piece.offset += (common->start[d] - piece.logical.start[d]) * piece.strides[d];
    piece.logical.start[d] = common->start[d] - box.start[d];
    piece.logical.size[d] = common->size[d];
  }
  return piece;
}

}  // namespace

std::optional<Box> common_part(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t i = 0; i < a.start.size(); ++i) {
    common.start[i] = std::max(a.start[i], b.start[i]);
    common.size[i] = std::min(a.start[i] + a.size[i], b.start[i] + b.size[i]) - common.start[i];
    if (common.size[i] <= 0) return std::nullopt;
  }
  return common;
}

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
