// Puts together what several candidates show.
#pragma once

#include <span>

#include "annotate/observation.h"

namespace ttrace {

// Makes the rules of a draft, in order of execution, those of one pattern together; their patterns are those of the
// subjects. Of an axis that several candidates have, what is certain on one of them counts; where two are certain of
// different things, no rule says either, and a remark says both. What a rule need not say (an axis that replicates, a
// kind that follows another) is left out. Sums that are a guess do not count.
void combine(std::span<const ObservedCandidate> candidates, Draft& draft);

}  // namespace ttrace
