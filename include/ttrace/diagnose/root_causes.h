// The root causes of a report: wrong tensors that nothing wrong explains, what their errors look like, what follows.
#pragma once

#include "ttrace/diagnose/diagnosis.h"
#include "ttrace/outcome.h"

namespace ttrace {

// Fills `report.roots`. The same tensor wrong in several micro-batches or iterations is one root. A few of them
// are diagnosed, the first and those that are not like it before others; of the rest only the place is known.
void add_root_causes(Report& report, const Evidence& evidence);

}  // namespace ttrace
