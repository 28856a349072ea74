// Tells the modules that return what they were given from those that compute.
#pragma once

#include "base/alignment.h"

namespace ttrace {

// The input (grad_output) whose bits a module's output (grad_input) of the same call has on every rank: the module is
// an identity, a dropout that drops nothing, a view. The shapes may differ. Null where there is none.
const LogicalTensor* passed_on_from(const Alignment& alignment, const TensorId& id);

inline bool is_passed_on(const Alignment& alignment, const TensorId& id) {
  return passed_on_from(alignment, id) != nullptr;
}

}  // namespace ttrace
