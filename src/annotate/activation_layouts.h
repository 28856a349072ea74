// Lists what may lie between the inputs or outputs of modules of two programs, and tells which of it does.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "annotate/pattern_trial.h"

namespace ttrace {

// Returns the layouts of one tensor on each side: [batch, sequence] and [sequence, batch], either in one dimension;
// heads by themselves.
const std::vector<std::string>& activation_layouts();

// Returns the layouts of tensors of three dimensions whose last ones have these patterns.
std::vector<std::string> layouts_ending_in(const std::vector<std::string>& reference,
                                           const std::vector<std::string>& candidate);

struct BestLayout {
  std::string pattern;
  double distance = std::numeric_limits<double>::infinity();  // relative
  std::optional<double> otherwise;                            // of the next best
  bool fits = false;
};

// The first of those by which the tensors are nearest; none where no pattern fits their shapes.
BestLayout best_of(const std::vector<std::string>& patterns, const AxisSizes& sizes, const PatternSides& sides);

// Returns how much larger a tensor is than what its elements differ from their mean by. Where they are all alike, any
// other such tensor is near, and tells nothing.
double likeness_of(const LogicalTensor& tensor);

}  // namespace ttrace
