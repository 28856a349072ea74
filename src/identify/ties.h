// Which of the declared ties a program has: a preset declares them for programs with and without.
#pragma once

#include <vector>

#include "base/alignment.h"
#include "base/annotation.h"
#include "identify/census.h"

namespace ttrace {

// `declared` without those that do not hold in the reference: ties of a parameter that it has under both names, with
// different values. `layout` is the reference's; where it is empty, `census` is of the reference.
std::vector<TiedRule> ties_that_hold(std::vector<TiedRule> declared, const Census& census, const ModelLayout& layout);

}  // namespace ttrace
