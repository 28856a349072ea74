// Sees through modules that only hold another one: a wrapper of a loss or of a model, which puts the name of the
// attribute that holds it in front of every name inside. The recorder leaves out the components of wrappers that it
// knows (src/python/ttrace_torch/clock.py); what others are shows in the names of both sides.
#pragma once

#include <string>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Leaves out, of the candidate's names, the attribute by which a module holds its only child, where
//
// - the module has no parameters and buffers of its own, and nothing of the reference goes by that attribute;
// - without it, most parameters inside have the reference's names, and of those that can be compared (the same dtype and
//   shape on a rank) most begin with its bytes; all must have its names where none can be compared. Where there are no
//   parameters inside, most modules must.
//
// So is a module outside of the model seen through that the reference calls by itself, and the candidate in one that
// holds nothing but it: of the same class, by which such modules go, where most modules inside have the reference's
// names, and buffers and parameters inside do as above. Its calls are then rather the child's.
//
// What is inside keeps its values, and a parameter that one side lacks is still missing. The calls of the module and of
// its child go by the reference's name where they hand over the same members, rather the module's; the other's by the
// child's name. Returns a note about each.
std::vector<std::string> see_through_wrappers(const Trace& reference, Trace& candidate);

}  // namespace ttrace
