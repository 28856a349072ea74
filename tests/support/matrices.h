// Parts of matrices, which tests hold as vectors in row-major order.
#pragma once

#include <cstdint>
#include <vector>

namespace ttrace::test {

// Returns the rows from `begin` to before `end`, of a matrix whose rows are `width` long.
template <class T>
std::vector<T> rows_of(const std::vector<T>& matrix, std::int64_t width, std::int64_t begin, std::int64_t end) {
  return {matrix.begin() + begin * width, matrix.begin() + end * width};
}

template <class T>
std::vector<T> columns_of(const std::vector<T>& matrix, std::int64_t width, std::int64_t begin, std::int64_t end) {
  std::vector<T> columns;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % width;
    if (column >= begin && column < end) columns.push_back(matrix[i]);
  }
  return columns;
}

// Returns part `part` of `parts` equal ones, cut between rows.
template <class T>
std::vector<T> part_of_rows(const std::vector<T>& matrix, std::int64_t part, std::int64_t parts) {
  return rows_of(matrix, static_cast<std::int64_t>(matrix.size()) / parts, part, part + 1);
}

// Returns part `part` of `parts` equal ones, cut between columns.
template <class T>
std::vector<T> part_of_columns(const std::vector<T>& matrix, std::int64_t width, std::int64_t part,
                               std::int64_t parts) {
  return columns_of(matrix, width, part * width / parts, (part + 1) * width / parts);
}

}  // namespace ttrace::test
