// One rank's part of a logical tensor as a matrix, with the indices that its rows and columns have in the logical
// tensor.
#pragma once

#include <optional>
#include <vector>

#include "selfcheck/matrices.h"

namespace ttrace {

// A run of `size` indices of a dimension: from `local` on, on the rank, and from `logical` on, in the logical tensor.
struct RankStretch {
  std::int64_t local = 0, logical = 0, size = 0;
  friend auto operator<=>(const RankStretch&, const RankStretch&) = default;
};
// The stretches of each dimension, in the rank's order. Two that are equal are the same part in the same order.
using Stretches = std::vector<std::vector<RankStretch>>;

// All dimensions but the last count as rows.
struct RankMatrix {
  abft::MatrixView view;
  Dtype stored = Dtype::kFloat32;
  Stretches rows, cols;
};
RankMatrix transposed(const RankMatrix& matrix);

// Returns the rank's part. Nothing if the rank holds none of the tensor, or no box of it: padding, a fragment of a flat
// buffer.
std::optional<RankMatrix> rank_matrix_of(const LogicalTensor& tensor, const std::vector<Piece>& pieces,
                                         std::int32_t rank);
// Returns the logical tensor as if one rank held all of it. `matrix` is `matrix_of(tensor)`.
RankMatrix whole_matrix_of(const LogicalTensor& tensor, const Matrix& matrix);

// Returns the elements of `whole` at these indices, row-major and in their order: a part that a rank gathered. Nothing
// if `rows` or `cols` lie outside of the whole.
std::optional<std::vector<double>> gather_values(const RankMatrix& whole, const Stretches& rows, const Stretches& cols);
std::int64_t index_count(const Stretches& indices);

}  // namespace ttrace
