// Steps that one rank takes for all: ZeRO by hand, where each of the data-parallel ranks has some of the parameters in its
// optimizer, and hands on what it has made of them.
#pragma once

#include <string>
#include <vector>

#include "identify/identity.h"
#include "identify/ranks.h"

namespace ttrace {

// Sets `owned` of what one rank along the micro-batch axes has of a step, where each other rank says that no optimizer of
// its own has the parameter, and no rule places it. A main gradient of those is nobody's to step with, and is left out.
// What the ranks go on with (`param_after`) stays everybody's.
void find_own_steps(Grouping& grouping, const RankTable& table);

// Sets `owned` of what some ranks along the micro-batch axes keep beside their models, such as a moving average of the
// main process, where each other rank says that it keeps no such thing. One that keeps it, and has not changed it, has
// forgotten it. Returns what is to be noted of them.
std::vector<std::string> find_own_copies(Grouping& grouping, const RankTable& table);

// Finds main gradients that each rank has of its own samples, of parameters that no optimizer of any rank has and that
// are, after the step, the same on all: the program reduces a copy of its own, such as one flat tensor of all gradients,
// and steps with that.
void find_own_gradients(Grouping& grouping, const RankTable& table);

}  // namespace ttrace
