// A view of a matrix in memory that others own, of any dtype and any layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/dtype.h"

namespace ttrace::abft {

// Strides are in elements. A stride of 0 repeats a row or a column: a bias over all rows is one row, repeated.
struct MatrixView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t row_stride = 0, col_stride = 0;

  const std::byte* at(std::int64_t row, std::int64_t col) const {
    return data + (row * row_stride + col * col_stride) * size_of(dtype);
  }
};

MatrixView row_major(const void* data, Dtype dtype, std::int64_t rows, std::int64_t cols);

MatrixView transposed(const MatrixView& matrix);

// Returns the block of `rows` x `cols` that begins at (`row`, `col`), which lies in the matrix.
MatrixView block(const MatrixView& matrix, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols);

// Returns `values`, one for each column, as a matrix of `rows` equal rows: a bias.
MatrixView repeated_row(const void* values, Dtype dtype, std::int64_t rows, std::int64_t cols);

double element(const MatrixView& matrix, std::int64_t row, std::int64_t col);

// Reads the block of `rows` x `cols` at (`row`, `col`) in fp64, row-major. Fast if rows or columns are contiguous.
void read(const MatrixView& matrix, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
          double* out);

}  // namespace ttrace::abft
