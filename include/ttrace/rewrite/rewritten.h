// Which values a run was given in place of its own, as its trace says.
#pragma once

#include "ttrace/trace.h"

namespace ttrace {

// True where the modules of the run were given their inputs and output gradients.
bool has_rewritten_modules(const Trace& trace);

// Throws InputError where the two say nothing about each other: they were given different values. A run that was given
// what `reference` itself recorded is as good as one that was given nothing.
void require_same_values(const Trace& reference, const Trace& trace);

}  // namespace ttrace
