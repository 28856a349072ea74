// Tells a loss scale that nobody has said from an error: where what steps take of the gradients is right, a loss and its
// gradients may be any multiple on the way there.
#pragma once

#include <cstddef>
#include <vector>

#include "base/outcome.h"

namespace ttrace {

// Returns the failed findings, by index, that a loss scale explains: of a micro-batch all gradients of parameters, and
// of activations of more than one element, if all of them are the reference's times one number, an integer or one over
// it, and with them the numbers of the micro-batch (its loss, and outputs of one element) that are the same multiple; or
// these numbers alone, where no other gradient is wrong than theirs, by the inverse multiple. Presumes that what the
// steps take and make is right.
std::vector<std::size_t> find_scaled(const Report& report);

// Returns the integer, or one over it, that the candidate's tensor is the reference's times; 1 where it is none.
double whole_factor_of(const Finding& finding);

}  // namespace ttrace
