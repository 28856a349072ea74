// Losses that are a mean, or a sum, of one term for each element or row, computed again from recorded tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/alignment.h"
#include "diagnose/slices.h"

namespace ttrace {

// One for each element of a prediction, or for each row of its scores; none where the row's label is ignored.
using LossTerms = std::vector<std::optional<double>>;

// Returns the term that a loss makes of an element of the prediction, or of the scores of all classes, and its target.
using TermFunction = double (*)(const Values& scores, double target);

struct Loss {
  TensorId prediction, target;  // operands of the same call
  TermFunction function = nullptr;
  std::optional<std::size_t> class_dim{};  // of the prediction; none: a term is of one element
  bool shifted = false;                    // a row's label is that of the next row; the last of a sequence has none
  bool is_mean = true;                     // else it is the sum

  std::string_view unit() const;                // what has a term: `elements`
  Slices classes_in(const Shape& shape) const;  // of the prediction, around the dimension of classes
};

// Returns the terms of a loss of these operands; none at all where a label is no class.
LossTerms terms_of(const Loss& loss, const LogicalTensor& prediction, const LogicalTensor& target);

// Some of the terms.
struct LossPart {
  double sum = 0;
  std::int64_t count = 0;

  void add(const std::optional<double>& term) {
    sum += term.value_or(0);
    count += term.has_value();
  }
  double mean() const { return sum / static_cast<double>(count); }  // NaN of none
};

// Returns the loss that makes `value`, to within `most`, of tensors that the call took or returned whose output `id`
// is; of several the one that comes nearest.
std::optional<Loss> find_loss(const Alignment& alignment, const TensorId& id, double value, double most);

}  // namespace ttrace
