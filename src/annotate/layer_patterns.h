// Puts what corresponds in each layer together, as lines of a correspondence file for all layers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "annotate/module_counterparts.h"

namespace ttrace {

// A line of the file.
struct CounterpartRule {
  Counterparts line;                                        // its names have captures, as in `layers.{i}.mlp`
  std::size_t instances = 1, equal = 0, near = 0, far = 0;  // layers; of these, where parameters are equal, ...
  double nearest_other = 0;  // the smallest distance by another pattern; 0: none was tried
};

// Returns the lines in order of execution. Where a layer needs another pattern than most, a remark says so.
std::vector<CounterpartRule> put_layers_together(std::vector<Counterparts> counterparts);

}  // namespace ttrace
