// No-op modules, which one program calls and the other does not: one release of a framework calls a module that returns
// what it is given where a norm may stand, and the next leaves it out.
#pragma once

#include "ttrace/judge/match.h"

namespace ttrace {

// Waives what is missing of a no-op module. On its own side, in every call each output has, on every rank, the bits of an
// input, and each grad_input those of a grad_output, of the same shape and dtype; nothing else goes in or comes out; the
// module has no parameters and no modules inside; and some output is not zero. The other side holds nothing at all of
// it. Counts and names what it waives.
void waive_no_ops(const Alignment& reference, const Alignment& candidate, Matching& matching);

}  // namespace ttrace
