// Holds iterations of one run against others of another: those of a resumed run, which counts them from 0 again, against
// those of a run that went on.
#pragma once

#include <cstdint>
#include <set>

#include "base/trace.h"

namespace ttrace {

// Gives the candidate's `iterations` the numbers of the reference's, each that of the one in its place, and drops its
// others. Throws InputError where they are not as many.
void renumber_iterations(Trace& candidate, const std::set<std::int32_t>& iterations,
                         const std::set<std::int32_t>& of_reference);

}  // namespace ttrace
