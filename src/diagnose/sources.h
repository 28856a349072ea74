// Says of root causes where their modules are in the program's source.
#pragma once

#include "base/alignment.h"
#include "base/outcome.h"
#include "base/trace.h"

namespace ttrace {

// Fills `source` of the roots that text shows, where a rank of the candidate that holds a part of the wrong tensor has
// said it. A root in an optimizer's step gets none: the mistake is not where its parameter is used.
// `candidate` is the alignment of `trace`.
void add_sources(Report& report, const Alignment& candidate, const Trace& trace);

}  // namespace ttrace
