// Puts gradients in the order in which backward makes them.
//
// What a module returns and what the next one takes may be one tensor, whose gradient is then recorded twice: as the
// first one's grad_output, by the hook that was registered first, and after that as the second one's grad_input. It was
// the second module that made it. Of such recordings of one gradient, the order of execution is the reverse.
#pragma once

#include <cstdint>
#include <map>

#include "base/alignment.h"

namespace ttrace {

// Returns the place in execution of the gradients of activations whose `order` says it wrongly. Recordings of one
// gradient are those that follow each other, have the same bits, and belong to inputs and outputs of the same bits.
std::map<TensorId, std::uint64_t> backward_order(const Alignment& reference);

}  // namespace ttrace
