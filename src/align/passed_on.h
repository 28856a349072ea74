// Tells the modules that return what they were given from those that compute.
#pragma once

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// True where the tensor, a module's output (or grad_input), has on every rank the bits of an input (a grad_output) of
// the same call: an identity, a dropout that drops nothing, a view. The shapes may differ.
bool is_passed_on(const Alignment& alignment, const TensorId& id);

}  // namespace ttrace
