// Tells what a program trains: the parameters that want gradients, and the optimizers that have them. Of those that got
// gradients steps tell (judge_steps.h); of the others nothing but this.
#pragma once

#include "align/aligned_trace.h"
#include "base/outcome.h"

namespace ttrace {

// Adds to `coverage` how many parameters of the candidate want gradients, and which of them were not trained, and why.
// Nothing where a rank of it does not say.
void add_account(const AlignedTrace& candidate, StepCoverage& coverage);

}  // namespace ttrace
