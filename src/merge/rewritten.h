// Tells, by a run's trace, which values the run was given in place of its own.
#pragma once

#include "base/trace.h"

namespace ttrace {

// True where the modules of the run were given their inputs and output gradients.
bool has_rewritten_modules(const Trace& trace);

// Throws InputError where the two runs were given different values, since they say nothing about each other then. A run
// that was given what `reference` itself recorded fits as well.
void require_same_values(const Trace& reference, const Trace& trace);

}  // namespace ttrace
