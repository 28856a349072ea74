// Modules that one program calls and the other does not have: one release of a framework calls a module that returns
// what it is given where a norm may stand, and the next leaves it out; a parallel program gathers in a module of its
// own.
#pragma once

#include "judge/match.h"

namespace ttrace {

// Waives what is missing of modules of which the other side holds nothing at all, and counts and names it:
//
// - of no-op modules of either side. On its own side, in every call each output has, on every rank, the bits of an
//   input, and each grad_input those of a grad_output, of the same shape and dtype; nothing else goes in or comes out;
//   the module has no parameters and no modules inside; and some output is not zero;
// - of modules of the candidate with no parameter inside. All that the reference holds is compared all the same, and
//   what such a module does to it shows there.
//
// The same of modules that one side calls, and of which the other calls nothing but what is inside: a method in place of
// `forward` may do so. Where it is the reference that calls them, what they are given and make has to be, bit for bit,
// what a module inside is given or makes, which is compared.
void waive_lone_modules(const Alignment& reference, const Alignment& candidate, Matching& matching);

}  // namespace ttrace
