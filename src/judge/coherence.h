// Judges the scale that several tensors have in common.
#pragma once

#include <span>
#include <vector>

#include "judge/judge.h"

namespace ttrace {

// Holds the groups of tensors that pass against `tolerance.coherence`. What is measured stands in the group's first
// finding in execution order, which fails where it exceeds what is allowed. Where a tensor is wrong that no waiver
// accepts, nothing is judged: the run is different, and what follows from a wrong tensor says nothing of a group.
void judge_coherence(const ToleranceFile& tolerance, std::span<const Waiver> waivers, std::vector<Finding>& findings);

}  // namespace ttrace
