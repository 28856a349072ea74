// Of tolerances that nobody measured, which hold no step of an optimizer against the reference's.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/finding.h"

namespace ttrace {

// Adds to `doubts` the parameters after a step that is `noise` itself, by tolerances that were not measured: those let a
// parameter be off by twice its update, so that it says nothing of the step. One that is equal does. Returns the families
// of parameters no step of which is proved, and those of `unheld` updates.
std::vector<std::string> doubt_unmeasured_steps(std::span<const Finding> findings, const std::set<TensorId>& unheld,
                                                std::map<TensorId, std::string>& doubts);

}  // namespace ttrace
