// Revises the roots that a check has found by a second run, in which every module was given the reference's values
// (ttrace/rewrite/). Data flow over recorded tensors cannot tell a wrong module from one that makes a small error
// large, and does not see a second bug in the wake of the first. The second run tells both.
#pragma once

#include <string>

#include "base/outcome.h"

namespace ttrace {

// Says what the second run has to rewrite. Neither is set where a second run would tell nothing.
struct SecondRunPlan {
  bool modules = false;     // activations: some module's input, output or gradient is wrong
  bool parameters = false;  // initial parameters, where some are wrong: their modules would stay wrong otherwise
  std::string reason;       // for people, why neither is set
};

// Plans the second run by the first run's findings.
SecondRunPlan plan_second_run(const Report& first);

// Revises `report.explanation.roots` by the report on the second run: confirmed and found roots come in order of execution, then
// the moved ones. A root without a diagnosis gets the second report's, which sees the module's error by itself.
void add_second_run(Report& report, const Report& second);

}  // namespace ttrace
