#include "align/token_rows.h"

#include <algorithm>
#include <iterator>
#include <map>
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

// The tensor with one more dimension, of one element: its elements are tokens then.
LogicalTensor with_column(const LogicalTensor& tensor) {
  LogicalTensor column = tensor;
  column.shape.push_back(1);
  column.pieces = [pieces = tensor.pieces] {
    std::vector<Piece> result = pieces();
    for (Piece& piece : result) {
      piece.logical.start.push_back(0);
      piece.logical.size.push_back(1);
      piece.strides.push_back(1);
    }
    return result;
  };
  return column;
}

// Exchanges the numbers of two of the copies, or of two of the terms.
void exchange(std::vector<Piece>& pieces, std::int32_t Piece::* number, std::int32_t other) {
  for (Piece& piece : pieces) {
    if (piece.*number == 0) {
      piece.*number = other;
    } else if (piece.*number == other) {
      piece.*number = 0;
    }
  }
}

// The tensor with a copy, and a term, as the first that fills more of it than the others.
LogicalTensor with_fullest_first(const LogicalTensor& tensor) {
  LogicalTensor result = tensor;
  result.pieces = [make = tensor.pieces] {
    std::vector<Piece> pieces = make();
    for (std::int32_t Piece::* number : {&Piece::term, &Piece::replica}) {
      std::map<std::int32_t, std::int64_t> elements;
      for (const Piece& piece : pieces) elements[piece.*number] += element_count(piece.logical.size);
      const auto fullest = std::max_element(elements.begin(), elements.end(),
                                            [](const auto& a, const auto& b) { return a.second < b.second; });
      exchange(pieces, number, fullest->first);
    }
    sort_pieces(pieces);
    return pieces;
  };
  return result;
}

// The tokens of a tensor [.., columns] that no piece holds.
std::vector<std::int64_t> tokens_held_by_none(const LogicalTensor& tensor) {
  const Shape tokens(tensor.shape.begin(), tensor.shape.end() - 1), strides = row_major_strides(tokens);
  std::vector<bool> held(static_cast<std::size_t>(element_count(tokens)), false);
  for (const Piece& piece : tensor.pieces()) {
    const Shape size(piece.logical.size.begin(), piece.logical.size.end() - 1);
    for (std::int64_t i = 0; i < element_count(size); ++i) {
      const Shape index = index_at(i, size);
      std::int64_t token = 0;
      for (std::size_t d = 0; d < index.size(); ++d) token += (piece.logical.start[d] + index[d]) * strides[d];
      held[static_cast<std::size_t>(token)] = true;
    }
  }
  std::vector<std::int64_t> none;
  for (std::size_t token = 0; token < held.size(); ++token) {
    if (!held[token]) none.push_back(static_cast<std::int64_t>(token));
  }
  return none;
}

}  // namespace

LogicalTensor without_cut(const LogicalTensor& tensor, const std::vector<std::size_t>& cut) {
  const bool in_last = std::find(cut.begin(), cut.end(), tensor.shape.size() - 1) != cut.end();
  const LogicalTensor rows = in_last ? with_column(tensor) : tensor;
  auto dropped = std::make_shared<const std::vector<std::int64_t>>(tokens_held_by_none(rows));
  return dropped->empty() ? with_fullest_first(tensor) : with_changed_rows(rows, {std::move(dropped)});
}

LogicalTensor with_dropped(const LogicalTensor& tensor, std::shared_ptr<const std::vector<std::int64_t>> dropped) {
  LogicalTensor rows = tensor.shape.size() == 1 ? with_column(tensor) : tensor;
  Shape whole = rows.shape;
  whole[0] += std::ssize(*dropped);
  rows.kept = std::make_shared<const KeptTokens>(KeptTokens{std::move(whole), std::move(dropped)});
  return rows;
}

LogicalTensor cut_like(const LogicalTensor& tensor, const KeptTokens& kept) {
  const bool in_last = kept.whole.size() > tensor.shape.size();
  return with_changed_rows(in_last ? with_column(tensor) : tensor, {kept.dropped});
}

bool has_whole_shape(const LogicalTensor& tensor, const KeptTokens& kept) {
  return tensor.shape == kept.whole || with_column(tensor).shape == kept.whole;
}

LogicalTensor with_changed_rows(const LogicalTensor& tensor, const RowChange& change) {
  static const auto kNoneDropped = std::make_shared<const std::vector<std::int64_t>>();
  static const auto kNoneMoved = std::make_shared<const std::map<std::int64_t, std::vector<std::int64_t>>>();
  const auto dropped = change.dropped == nullptr ? kNoneDropped : change.dropped;
  const auto moved = change.moved == nullptr ? kNoneMoved : change.moved;
  LogicalTensor changed = tensor;
  const std::int64_t columns = tensor.shape.back();
  changed.shape = {element_count(tensor.shape) / columns - std::ssize(*dropped), columns};
  changed.kept = std::make_shared<const KeptTokens>(KeptTokens{tensor.shape, dropped});
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
