// Tries the guesses of a draft, which do not count, on what a check found wrong.
#pragma once

#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/outcome.h"
#include "tolerance/tolerance.h"

namespace ttrace {

// Returns a note for each guess in the annotations' files (`Guess`) with which tensors would pass that are wrong or
// missing in `report`. `candidate` has settled axes. `tolerance` may be null.
std::vector<std::string> notes_of_guesses(const AnnotationSource& source, const Alignment& reference,
                                          const Trace& candidate, const ToleranceFile* tolerance, const Report& report);

}  // namespace ttrace
