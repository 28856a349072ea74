#include "abft/matrix_view.h"

#include <vector>

#include "numeric/convert.h"

namespace ttrace::abft {

MatrixView row_major(const void* data, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return {static_cast<const std::byte*>(data), dtype, rows, cols, cols, 1};
}

MatrixView transposed(const MatrixView& matrix) {
  return {matrix.data, matrix.dtype, matrix.cols, matrix.rows, matrix.col_stride, matrix.row_stride};
}

MatrixView block(const MatrixView& matrix, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  return {matrix.at(row, col), matrix.dtype, rows, cols, matrix.row_stride, matrix.col_stride};
}

MatrixView repeated_row(const void* values, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return {static_cast<const std::byte*>(values), dtype, rows, cols, 0, 1};
}

double element(const MatrixView& matrix, std::int64_t row, std::int64_t col) {
  double value = 0;
  widen(matrix.at(row, col), matrix.dtype, 1, &value);
  return value;
}

void read(const MatrixView& matrix, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
          double* out) {
  if (matrix.col_stride == 1) {
    for (std::int64_t r = 0; r < rows; ++r) widen(matrix.at(row + r, col), matrix.dtype, cols, out + r * cols);
    return;
  }
  if (matrix.row_stride == 1) {
    std::vector<double> column(static_cast<std::size_t>(rows));
    for (std::int64_t c = 0; c < cols; ++c) {
      widen(matrix.at(row, col + c), matrix.dtype, rows, column.data());
      for (std::int64_t r = 0; r < rows; ++r) out[r * cols + c] = column[static_cast<std::size_t>(r)];
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) out[r * cols + c] = element(matrix, row + r, col + c);
  }
}

}  // namespace ttrace::abft
