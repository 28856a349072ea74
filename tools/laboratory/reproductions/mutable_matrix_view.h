// A matrix in memory that may be written: products are computed into it, and faults are put there.
#pragma once

#include "abft/matrix_view.h"

namespace ttrace::reproductions {

struct MutableMatrixView {
  std::byte* data = nullptr;
  abft::MatrixView layout;

  std::byte* at(std::int64_t row, std::int64_t col) const {
    return data + (row * layout.row_stride + col * layout.col_stride) * size_of(layout.dtype);
  }
};

inline MutableMatrixView mutable_row_major(void* data, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return {static_cast<std::byte*>(data), abft::row_major(data, dtype, rows, cols)};
}

}  // namespace ttrace::reproductions
