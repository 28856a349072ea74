// Steps that one rank takes for all: ZeRO by hand, where each of the data-parallel ranks has some of the parameters in its
// optimizer, and hands on what it has made of them.
#pragma once

#include "identify/identity.h"
#include "identify/ranks.h"

namespace ttrace {

// Sets `owned` of what one rank along the micro-batch axes has of a step, where each other rank says that no optimizer of
// its own has the parameter, and no rule places it. A main gradient of those is nobody's to step with, and is left out.
// What the ranks go on with (`param_after`) stays everybody's.
void find_own_steps(Grouping& grouping, const RankTable& table);

}  // namespace ttrace
