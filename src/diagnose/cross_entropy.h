// Cross entropies, read from the scores that they were taken of and the gradient with respect to these.
//
// The gradient tells all of the loss but its value: of scores x of V classes in a row, with p = softmax(x / T) and
// l = log sum exp(x / T), it is for class j
//
//   w / T (p_j (1 + 2 c l) - e / V - (1 - e) [j is the label])
//
// where the row weighs w (one over what the loss is divided by), T is a temperature, labels are smoothed by e, and c l^2
// is a z-loss that is added to each row. A row that is ignored has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "merge/values.h"

namespace ttrace {

inline constexpr double kReadingSteps = 16;  // rounding steps of an element that a gradient is read to within

struct RowOfEntropy {
  std::size_t label = 0;
  double weight = 0;
};

struct CrossEntropy {
  std::size_t classes = 0;
  double temperature = 1, smoothing = 0, z_loss = 0;
  std::vector<std::optional<RowOfEntropy>> rows;  // none: the row is ignored

  std::int64_t counted() const;                    // rows that are not ignored
  Values gradient_of(const Values& scores) const;  // of as many rows
  double value_of(const Values& scores) const;     // the same
};

// Returns the simplest cross entropy whose gradient is that, to within the share `bound` of its norm; nothing where it is
// none, or has fewer than four classes. Rows and classes are those of both tensors, row-major.
std::optional<CrossEntropy> read_cross_entropy(const Values& scores, const Values& gradient, std::size_t classes,
                                               double bound);

}  // namespace ttrace
