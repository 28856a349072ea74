// Prints logical tensors for `ttrace show`.
#pragma once

#include <string>

#include "align/aligned_trace.h"
#include "inspect/selection.h"

namespace ttrace {

struct ShowOptions {
  TensorChoice choice;
  std::string slice;  // as `parse_slice` reads it; empty: all
};

// Shows each chosen tensor of the candidate: its values, where a reference is given the reference's values and the
// difference, and the shards that hold what is shown. Without an iteration or a micro-batch in `choice` those of the
// first one that recorded the name and kind are shown. `reference` may be null. Throws InputError where nothing was
// chosen, or more than 16 tensors were.
std::string show(const AlignedTrace& candidate, const AlignedTrace* reference, const ShowOptions& options);

}  // namespace ttrace
