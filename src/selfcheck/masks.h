// Scores that were masked before the softmax: -inf, or a number so low that nothing is left of its exponential.
#pragma once

#include <vector>

#include "selfcheck/attention_fit.h"

namespace ttrace {

// -1e4, which Megatron-LM fills masked scores with and which is -9984 in bf16, with a score added to it.
inline constexpr double kMasked = -9000;

// The scores that are masked in all heads of a sample. A mask holds for all heads; a score as low as that in one head
// alone is a fault.
class Masks {
 public:
  Masks(const Heads& scores, const AttentionSizes& sizes);

  bool any() const { return any_; }
  bool at(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    return masked_[static_cast<std::size_t>((batch * rows_ + row) * cols_ + col)];
  }
  bool masks_whole_row(std::int64_t batch, std::int64_t row) const;

 private:
  std::vector<bool> masked_;
  std::int64_t rows_, cols_;
  bool any_ = false;
};

}  // namespace ttrace
