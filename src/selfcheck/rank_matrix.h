// What one rank holds of a logical tensor, as a matrix, with the place of its rows and columns in the whole.
#pragma once

#include <optional>
#include <vector>

#include "selfcheck/matrices.h"

namespace ttrace {

// `size` indices of a dimension, from `local` on the rank and from `logical` in the whole.
struct RankStretch {
  std::int64_t local = 0, logical = 0, size = 0;
  friend auto operator<=>(const RankStretch&, const RankStretch&) = default;
};
// For each dimension its stretches, in the rank's order. Equal places hold the same part in the same order.
using Places = std::vector<std::vector<RankStretch>>;

// All dimensions but the last are rows.
struct RankMatrix {
  abft::MatrixView view;
  Dtype stored = Dtype::kFloat32;
  Places rows, cols;
};
RankMatrix transposed(const RankMatrix& matrix);

// Nothing where the rank holds none of it, or no box of it: padding, a fragment of a flat buffer.
std::optional<RankMatrix> rank_matrix_of(const LogicalTensor& tensor, const std::vector<Piece>& pieces,
                                         std::int32_t rank);
// The logical tensor as if one rank held it.
RankMatrix whole_of(const LogicalTensor& tensor, const Matrix& matrix);

// The part of a whole at these places, in their order: what a rank has gathered. Nothing where `rows` or `cols` are not
// of the whole's dimensions.
std::optional<std::vector<double>> values_at(const RankMatrix& whole, const Places& rows, const Places& cols);
std::int64_t count_of(const Places& places);  // indices

}  // namespace ttrace
