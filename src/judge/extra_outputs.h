// Values that a module returns on one side beside those of both: one attention returns its weights, and another None in
// their place.
#pragma once

#include "judge/match.h"

namespace ttrace {

// Waives what is missing of such values and of their gradients, and counts and names it. They are floating-point members
// of a tuple that a module inside the model returns, and the other side holds another output of the same call, with its
// gradient: what such a value does, on the side that has it, shows there and in the modules after it.
void waive_extra_outputs(const Alignment& reference, const Alignment& candidate, Matching& matching);

}  // namespace ttrace
