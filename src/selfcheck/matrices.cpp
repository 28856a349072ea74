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
  bool is_single = true;
  const std::vector<Piece> pieces = tensor.pieces();
  for (const Piece& piece : pieces) {
    if (piece.replica != 0) continue;
    is_single = is_single && only == nullptr;
    only = &piece;
  }
  if (is_single && only != nullptr && is_row_major(*only) && only->entry->dtype == tensor.dtype) {
    const std::byte* data = only->elements() + only->offset * size_of(tensor.dtype);
    matrix.view = abft::row_major(data, tensor.dtype, rows, cols);
    return matrix;
  }
  // The scale that the annotations declare is left out: it holds for the whole micro-batch, on both sides of a
  // relation.
  LogicalTensor as_recorded = tensor;
  as_recorded.scale = 1;
  matrix.copy = std::make_shared<const std::vector<double>>(values_of(as_recorded));
  matrix.view = abft::row_major(matrix.copy->data(), Dtype::kFloat64, rows, cols);
  return matrix;
}

}  // namespace ttrace
