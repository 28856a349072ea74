#include "align/holders.h"

#include <algorithm>
#include <set>

namespace ttrace {
namespace {

template <typename Predicate>
std::vector<std::int32_t> ranks_where(const std::vector<Piece>& pieces, Predicate holds) {
  std::set<std::int32_t> ranks;
  for (const Piece& piece : pieces) {
    if (holds(piece)) ranks.insert(piece.rank);
  }
  return {ranks.begin(), ranks.end()};
}

bool contains(const Box& box, const Shape& index) {
  for (std::size_t d = 0; d < index.size(); ++d) {
    const std::int64_t at = index[d] - box.start[d];
    if (at < 0 || at >= box.size[d]) return false;
  }
  return true;
}

}  // namespace

std::vector<std::int32_t> ranks_holding(const LogicalTensor& tensor) {
  return ranks_where(tensor.pieces(), [](const Piece&) { return true; });
}

std::vector<std::int32_t> ranks_holding(const LogicalTensor& tensor, std::int64_t element) {
  const Shape index = index_at(element, tensor.shape);
  return ranks_where(tensor.pieces(), [&](const Piece& piece) { return contains(piece.logical, index); });
}

std::vector<std::int32_t> with_ranks_of_same_boxes(const LogicalTensor& tensor, std::span<const std::int32_t> ranks) {
  const std::vector<Piece> pieces = tensor.pieces();
  std::set<Shape> starts;  // of the boxes that `ranks` hold
  for (const Piece& piece : pieces) {
    if (std::binary_search(ranks.begin(), ranks.end(), piece.rank)) starts.insert(piece.logical.start);
  }
  return ranks_where(pieces, [&](const Piece& piece) { return starts.contains(piece.logical.start); });
}

}  // namespace ttrace
