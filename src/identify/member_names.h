// Names of what modules are given and return, where two programs hand over another number of values.
#pragma once

#include <string>

#include "base/alignment.h"
#include "base/trace.h"

namespace ttrace {

// `name`, of an input, an output or the gradient of one, as the reference has it. The first value has no member where it
// is the only one, and is `:0` where others are handed over beside it: `model(ids)` and `model(ids, None)` name one input
// in two ways, and so does what returns `(hidden, None)` and `(hidden, weights)` with its output. Where the reference has
// a tensor of just the other name, it is that one. Names of other kinds are returned as they are.
std::string name_of_member(const std::string& name, Kind kind, const ModelLayout& layout);

// What a rank's tensor is called in the reference, of a program that numbers no layers and experts anew. Chunks that no
// rule makes stages of one model (`are_stages`) are models of their own.
TensorId id_in_reference(TensorId id, const ModelLayout& layout, bool are_stages);

}  // namespace ttrace
