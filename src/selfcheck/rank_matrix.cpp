#include "selfcheck/rank_matrix.h"

#include <algorithm>
#include <set>

namespace ttrace {
namespace {

// Joins stretches that continue each other, in the rank's order.
std::vector<RankStretch> joined(const std::set<RankStretch>& stretches) {
  std::vector<RankStretch> result;
  for (const RankStretch& next : stretches) {
    RankStretch* const last = result.empty() ? nullptr : &result.back();
    if (last && last->local + last->size == next.local && last->logical + last->size == next.logical) {
      last->size += next.size;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

std::int64_t length_of(const std::vector<RankStretch>& stretches) {
  std::int64_t length = 0;
  for (const RankStretch& stretch : stretches) length += stretch.size;
  return length;
}

// Returns whether the piece's elements lie in the entry in the order that they have in the logical tensor.
bool lies_in_order(const Piece& piece, const Shape& strides) {
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (piece.logical.size[d] > 1 && piece.strides[d] != strides[d]) return false;
  }
  return true;
}

RankMatrix matrix_of(const abft::MatrixView& view, Dtype stored, Stretches indices) {
  RankMatrix matrix{view, stored, {}, {}};
  matrix.cols = {std::move(indices.back())};
  indices.pop_back();
  matrix.rows = std::move(indices);
  return matrix;
}

// Returns the row-major number, in the whole, of every combination of indices.
std::vector<std::int64_t> row_major_numbers(const Stretches& indices, const Stretches& whole) {
  std::vector<std::int64_t> numbers = {0};
  for (std::size_t d = 0; d < indices.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t number : numbers) {
      for (const RankStretch& stretch : indices[d]) {
        for (std::int64_t i = 0; i < stretch.size; ++i) {
          next.push_back(number * length_of(whole[d]) + stretch.logical + i);
        }
      }
    }
    numbers = std::move(next);
  }
  return numbers;
}

bool lies_within(const Stretches& indices, const Stretches& whole) {
  if (indices.size() != whole.size()) return false;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    for (const RankStretch& stretch : indices[d]) {
      if (stretch.logical + stretch.size > length_of(whole[d])) return false;
    }
  }
  return true;
}

}  // namespace

std::int64_t index_count(const Stretches& stretches) {
  std::int64_t count = 1;
  for (const std::vector<RankStretch>& of_dimension : stretches) count *= length_of(of_dimension);
  return count;
}

std::optional<std::vector<double>> gather_values(const RankMatrix& whole, const Stretches& rows,
                                                 const Stretches& cols) {
  if (!lies_within(rows, whole.rows) || !lies_within(cols, whole.cols)) return {};
  const std::vector<std::int64_t> row_numbers = row_major_numbers(rows, whole.rows),
                                  col_numbers = row_major_numbers(cols, whole.cols);
  std::vector<double> values;
  values.reserve(row_numbers.size() * col_numbers.size());
  std::vector<double> row(static_cast<std::size_t>(whole.view.cols));
  for (const std::int64_t number : row_numbers) {
    read(whole.view, number, 1, 0, whole.view.cols, row.data());
    for (const std::int64_t col : col_numbers) values.push_back(row[static_cast<std::size_t>(col)]);
  }
  return values;
}

RankMatrix transposed(const RankMatrix& matrix) {
  return {abft::transposed(matrix.view), matrix.stored, matrix.cols, matrix.rows};
}

std::optional<RankMatrix> rank_matrix_of(const LogicalTensor& tensor, const std::vector<Piece>& pieces,
                                         std::int32_t rank) {
  const std::size_t dims = tensor.shape.size();
  const Entry* entry = nullptr;
  const std::byte* data = nullptr;
  Shape strides;
  std::vector<std::set<RankStretch>> stretches(dims);
  for (const Piece& piece : pieces) {
    if (piece.rank != rank) continue;
    if (entry == nullptr) strides = row_major_strides(piece.entry->shape);
    if ((entry != nullptr && piece.entry != entry) || dims == 0 || strides.size() != dims) return {};
    entry = piece.entry;
    data = piece.elements();
    if (!lies_in_order(piece, strides)) return {};
    std::int64_t rest = piece.offset;
    for (std::size_t d = 0; d < dims; ++d) {
      stretches[d].insert({rest / strides[d], piece.logical.start[d], piece.logical.size[d]});
      rest %= strides[d];
    }
  }
  if (entry == nullptr || element_count(entry->shape) == 0) return {};
  Stretches indices;
  for (std::size_t d = 0; d < dims; ++d) {
    indices.push_back(joined(stretches[d]));
    if (length_of(indices.back()) != entry->shape[d]) return {};
  }
  const std::int64_t cols = entry->shape.back();
  return matrix_of(abft::row_major(data, entry->dtype, element_count(entry->shape) / cols, cols), entry->dtype,
                   std::move(indices));
}

RankMatrix whole_matrix_of(const LogicalTensor& tensor, const Matrix& matrix) {
  Stretches indices;
  for (const std::int64_t size : tensor.shape) indices.push_back({{0, 0, size}});
  return matrix_of(matrix.view, matrix.stored, std::move(indices));
}

}  // namespace ttrace
