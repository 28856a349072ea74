// Which parameters are tied: of the declared ties those that a program has, for a preset declares them for programs with
// and without; and those that the bytes say.
#pragma once

#include <vector>

#include "base/alignment.h"
#include "base/annotation.h"
#include "base/trace.h"
#include "identify/census.h"

namespace ttrace {

// `declared` without those that do not hold in the reference: ties of a parameter that it has under both names, with
// different values. `layout` is the reference's; where it is empty, `census` is of the reference.
std::vector<TiedRule> ties_that_hold(std::vector<TiedRule> declared, const Census& census, const ModelLayout& layout);

// The ties that bytes say, where nobody declares any: parameters that a reference of one rank has under several names, with
// one value, one gradient that is not zero, and one value after it, in all iterations, and of which no rank of the
// candidate has two under one name each, while every one of the other names' copies begins with the bytes of a copy under
// the first name. A name that ends another's is none of them: it would tie that, too.
std::vector<TiedRule> ties_of_bytes(const Trace& reference, const Trace& candidate);

}  // namespace ttrace
