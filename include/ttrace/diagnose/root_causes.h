// Finds the root causes of a report: wrong tensors whose sources are right.
#pragma once

#include "ttrace/diagnose/diagnosis.h"
#include "ttrace/outcome.h"

namespace ttrace {

// Fills `report.roots`. A tensor that is a root in several micro-batches or iterations is listed once. Five roots at
// most are diagnosed: those that differ in kind, pass or name (apart from its numbers) come first. The others get no
// diagnosis.
void add_root_causes(Report& report, const Evidence& evidence);

}  // namespace ttrace
