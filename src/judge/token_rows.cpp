#include "judge/token_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "align/pieces.h"

namespace ttrace {
namespace {

// Takes the piece of a tensor of shape `shape` apart into pieces of [tokens, columns], and hands each to `take`.
template <class Take>
void for_each_matrix(const Piece& piece, const Shape& shape, Take take) {
  const std::size_t outer = shape.size() - 2;
  Piece matrix = piece;
  matrix.strides.assign(piece.strides.end() - 2, piece.strides.end());
  matrix.logical.size.assign(piece.logical.size.end() - 2, piece.logical.size.end());
  const Shape sizes(piece.logical.size.begin(), piece.logical.size.end() - 2);
  for (std::int64_t i = 0; i < element_count(sizes); ++i) {
    const Shape index = index_at(i, sizes);
    std::int64_t token = 0;
    matrix.offset = piece.offset;
    for (std::size_t d = 0; d < outer; ++d) {
      token = token * shape[d] + piece.logical.start[d] + index[d];
      matrix.offset += index[d] * piece.strides[d];
    }
    matrix.logical.start = {token * shape[outer] + piece.logical.start[outer], piece.logical.start[outer + 1]};
    take(std::as_const(matrix));
  }
}

// The `count` tokens of the piece from its token `first` on, which become the tokens from `begin` on.
Piece stretch_of(const Piece& matrix, std::int64_t first, std::int64_t count, std::int64_t begin) {
  Piece stretch = matrix;
  stretch.offset += first * matrix.strides[0];
  stretch.logical.start[0] = begin;
  stretch.logical.size[0] = count;
  return stretch;
}

void add_changed(const Piece& matrix, const std::vector<std::int64_t>& all_dropped,
                 const std::map<std::int64_t, std::vector<std::int64_t>>& all_moved, std::vector<Piece>& pieces) {
  const std::int64_t start = matrix.logical.start[0], end = start + matrix.logical.size[0];
  auto dropped = std::lower_bound(all_dropped.begin(), all_dropped.end(), start);
  auto moved = all_moved.lower_bound(start);
  std::int64_t before = std::distance(all_dropped.begin(), dropped);  // tokens that were dropped so far
  const auto next_changed = [&] {
    std::int64_t next = end;
    if (dropped != all_dropped.end()) next = std::min(next, *dropped);
    if (moved != all_moved.end()) next = std::min(next, moved->first);
    return next;
  };
  for (std::int64_t token = start; token < end;) {
    const std::int64_t next = next_changed();
    if (next > token) {
      pieces.push_back(stretch_of(matrix, token - start, next - token, token - before));
      token = next;
      continue;
    }
    const bool is_moved = moved != all_moved.end() && moved->first == token;
    if (dropped != all_dropped.end() && *dropped == token) {
      ++dropped;
      ++before;
    } else {
      for (std::int64_t i = 0; i < matrix.logical.size[1]; ++i) {
        Piece& column = pieces.emplace_back(stretch_of(matrix, token - start, 1, token - before));
        column.offset += i * matrix.strides[1];
        column.logical.start[1] = moved->second[static_cast<std::size_t>(matrix.logical.start[1] + i)];
        column.logical.size[1] = 1;
      }
    }
    if (is_moved) ++moved;
    ++token;
  }
}

}  // namespace

LogicalTensor with_changed_rows(const LogicalTensor& tensor, const RowChange& change) {
  static const auto kNoneDropped = std::make_shared<const std::vector<std::int64_t>>();
  static const auto kNoneMoved = std::make_shared<const std::map<std::int64_t, std::vector<std::int64_t>>>();
  const auto dropped = change.dropped == nullptr ? kNoneDropped : change.dropped;
  const auto moved = change.moved == nullptr ? kNoneMoved : change.moved;
  LogicalTensor changed = tensor;
  const std::int64_t columns = tensor.shape.back();
  changed.shape = {element_count(tensor.shape) / columns - std::ssize(*dropped), columns};
  changed.kept = std::make_shared<const KeptTokens>(KeptTokens{tensor.shape, [dropped](std::int64_t token) {
                                                                 for (const std::int64_t other : *dropped)
                                                                   token += other <= token ? 1 : 0;
                                                                 return token;
                                                               }});
  changed.pieces = [pieces = tensor.pieces, shape = tensor.shape, dropped, moved] {
    std::vector<Piece> result;
    for (const Piece& piece : pieces()) {
      for_each_matrix(piece, shape, [&](const Piece& matrix) { add_changed(matrix, *dropped, *moved, result); });
    }
    sort_pieces(result);
    return result;
  };
  return changed;
}

}  // namespace ttrace
