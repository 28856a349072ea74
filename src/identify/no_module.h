// Tells which is which of the tensors that optimizers train and no module has: `(optimizer).0`, `(optimizer).1`, ...
// They are numbered by the order of their first steps, which two right programs may choose otherwise.
#pragma once

#include "base/trace.h"

namespace ttrace {

// Gives the candidate's tensors of no module the reference's numbers: on each rank, those that begin with the bytes of
// the reference's, in the same dtype and shape; then those of a shape that one tensor alone has on either side. Several
// that begin alike, and what nothing tells, keep their order.
void number_as_reference(const Trace& reference, Trace& candidate);

}  // namespace ttrace
