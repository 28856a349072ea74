#include "selfcheck/masks.h"

#include <algorithm>

namespace ttrace {

Masks::Masks(const Heads& scores, const AttentionSizes& sizes)
    : masked_(static_cast<std::size_t>(sizes.batch * sizes.rows * sizes.cols), true),
      rows_(sizes.rows),
      cols_(sizes.cols) {
  std::vector<double> values(static_cast<std::size_t>(cols_));
  for (std::int64_t batch = 0; batch < sizes.batch; ++batch) {
    for (std::int64_t head = 0; head < sizes.heads; ++head) {
      const abft::MatrixView matrix = scores.at(batch, head);
      for (std::int64_t row = 0; row < rows_; ++row) {
        read(matrix, row, 1, 0, cols_, values.data());
        for (std::int64_t col = 0; col < cols_; ++col) {
          if (values[static_cast<std::size_t>(col)] <= kMasked) continue;
          masked_[static_cast<std::size_t>((batch * rows_ + row) * cols_ + col)] = false;
        }
      }
    }
  }
  any_ = std::find(masked_.begin(), masked_.end(), true) != masked_.end();
}

bool Masks::masks_whole_row(std::int64_t batch, std::int64_t row) const {
  for (std::int64_t col = 0; col < cols_; ++col) {
    if (!at(batch, row, col)) return false;
  }
  return true;
}

}  // namespace ttrace
