// Estimates what the scale may be that tensors of a group have in common. The reasons are in coherence.cpp.
#pragma once

#include <span>

#include "tolerance/estimate.h"

namespace ttrace {

// Fills `coherence` of `file`, whose tensors have their tolerances. `rerun` may be null.
void estimate_coherence(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                        const EstimateOptions& options, const OwnRoundings& own_sums, ToleranceFile& file);

}  // namespace ttrace
