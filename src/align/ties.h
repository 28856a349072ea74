// Which of the declared ties a program has: a preset declares them for programs with and without.
#pragma once

#include "align/census.h"
#include "align/shard_mapping.h"
#include "base/annotation.h"

namespace ttrace {

// `annotations` without the `tied` rules that do not hold in the reference: those of a parameter that it has under both
// names, with different values. `layout` is the reference's; where it is empty, `ranks` are the reference.
Annotations with_ties_that_hold(Annotations annotations, const Census& census, const ModelLayout& layout);

}  // namespace ttrace
