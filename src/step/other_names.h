// Puts what was found of a candidate's steps into the reference's names, where the two programs name and cut their
// parameters differently.
#pragma once

#include "step/judge_steps.h"
#include "step/options.h"
#include "step/step.h"

namespace ttrace {

StatedSteps in_names_of_reference(const StatedSteps& stated, const ParameterCounterparts& counterparts);

// A finding about a parameter becomes one about each of its counterparts. What is made of several parameters is proved
// where the steps of all of them are.
StepCheck in_names_of_reference(StepCheck check, const ParameterCounterparts& counterparts);

}  // namespace ttrace
