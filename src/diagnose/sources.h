// Says of root causes where their modules are in the program's source.
#pragma once

#include "base/alignment.h"
#include "base/outcome.h"
#include "base/trace.h"

namespace ttrace {

// Fills `source` of the roots that text shows, where a rank of the candidate that holds a part of the wrong tensor has
// said it. A root in an optimizer's step gets no line: the mistake is not where its parameter is used. Names are the
// reference's, which says by which variable the program holds the model.
// `candidate` is the alignment of `trace`.
void add_sources(Report& report, const Alignment& candidate, const Trace& trace, const Trace& reference);

}  // namespace ttrace
