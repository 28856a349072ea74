// Values that one side has beside those of both: one attention returns its weights, and another None in their place; one
// library computes a norm, and another none.
#pragma once

#include "judge/match.h"

namespace ttrace {

// Waives what is missing of such values and of their gradients, and counts and names it. They are floating-point members
// of a tuple that a module inside the model returns, and the other side holds another output of the same call, with its
// gradient: what such a value does, on the side that has it, shows there and in the modules after it.
void waive_extra_outputs(const Alignment& reference, const Alignment& candidate, Matching& matching);

// Waives numbers of an iteration that the candidate alone has, as a norm that its library computes and its reference does
// not, and names them: what such a number does shows in what both have. One that the reference has in any iteration is
// none.
void waive_extra_scalars(const Alignment& reference, Matching& matching);

}  // namespace ttrace
