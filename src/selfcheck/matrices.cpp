#include "selfcheck/matrices.h"

#include "merge/values.h"

namespace ttrace {
namespace {

bool is_row_major(const Piece& piece) {
  std::int64_t stride = 1;
  for (std::size_t d = piece.strides.size(); d-- > 0;) {
    if (piece.logical.size[d] > 1 && piece.strides[d] != stride) return false;
    stride *= piece.logical.size[d];
  }
  return true;
}

}  // namespace

Matrix matrix_of(const LogicalTensor& tensor) {
  const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  const std::int64_t rows = cols == 0 ? 0 : element_count(tensor.shape) / cols;
  Matrix matrix;
  matrix.stored = tensor.dtype;
  const Piece* only = nullptr;
  bool one = true;
  const std::vector<Piece> pieces = tensor.pieces();
  for (const Piece& piece : pieces) {
    if (piece.replica != 0) continue;
    one = one && only == nullptr;
    only = &piece;
  }
  if (one && only != nullptr && is_row_major(*only) && only->entry->dtype == tensor.dtype) {
    const std::byte* data = only->data + only->offset * size_of(tensor.dtype);
    matrix.view = abft::row_major(data, tensor.dtype, rows, cols);
    return matrix;
  }
  // A factor that the annotations declare is that of the whole micro-batch, on both sides of every identity here.
  LogicalTensor as_recorded = tensor;
  as_recorded.scale = 1;
  matrix.copy = std::make_shared<const std::vector<double>>(values_of(as_recorded));
  matrix.view = abft::row_major(matrix.copy->data(), Dtype::kFloat64, rows, cols);
  return matrix;
}

}  // namespace ttrace
