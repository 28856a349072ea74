// Modules that one of the ranks along the data-parallel axes owns, under the names that the whole model has for them: a
// rank's own experts, or the tables of a recommender.
#pragma once

#include "identify/identity.h"
#include "identify/ranks.h"

namespace ttrace {

// Sets `owned` of the groups that one rank along the axes of slices owns, where no rule places them. Parameters are
// owned where every rank holds some that no other has, and all together hold each one of the reference's; modules with
// the parameters that are inside them, and no others; modules inside these that have no parameters, such as an expert's
// activation, where the owner alone called them; and so is what the model is given whole on one rank alone. What an
// owned module is given and returns is of the samples of all ranks, in an order that nothing tells: its placement is a
// guess. Where a rank's gradient is at once the one that its step takes, it was averaged before, as its module's
// gradients were: these have no factor. Where no parameters are owned, modules are that one rank alone calls for the whole
// of the reference's samples, where each rank has such.
void find_owned(Grouping& grouping, const RankTable& table, const ModelLayout& layout);

}  // namespace ttrace
