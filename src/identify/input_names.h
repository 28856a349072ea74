// Names of what modules are given, where two programs hand over another number of arguments.
#pragma once

#include <string>

#include "base/alignment.h"
#include "base/trace.h"

namespace ttrace {

// `name`, of an input or of its gradient, as the reference has it. The first positional argument has no member where it
// is the only one, and is `:0` where others follow, tensors or not: `model(ids)` and `model(ids, 0)`, or `model(ids,
// None)`, name one input in two ways. Where the reference has a tensor of just the other name, it is that one. Names of
// other kinds are returned as they are.
std::string name_of_input(const std::string& name, Kind kind, const ModelLayout& layout);

}  // namespace ttrace
