// Of steps of optimizers that the tensors compared say nothing of.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "base/finding.h"

namespace ttrace {

// Adds to `doubts` the parameters after a step that is `noise` itself, by tolerances that were not measured: those let a
// parameter be off by twice its update, so that it says nothing of the step. One that is equal does. Returns the families
// of parameters no step of which is proved, and those of `unheld` updates.
std::set<std::string> doubt_unmeasured_steps(std::span<const Finding> findings, const std::set<TensorId>& unheld,
                                             std::map<TensorId, std::string>& doubts);

// Returns the families of parameters that change by steps `elsewhere` (StepVerdicts), none of whose parameters after the
// step proves that step: it may differ by as much as it changed, as where its precision is coarse, or proves nothing.
std::set<std::string> find_steps_unseen_elsewhere(std::span<const Finding> findings,
                                                  const std::map<TensorId, double>& elsewhere,
                                                  const std::map<TensorId, std::string>& doubts);

}  // namespace ttrace
