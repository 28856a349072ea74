// Estimates what the statistics beside the norm may be. The reasons are in statistics.cpp.
#pragma once

#include <span>

#include "tolerance/estimate.h"

namespace ttrace {

// Fills `statistics` of the tensors in `file`, whose estimates and floors are those of the norm. `rerun` may be null.
void estimate_statistics(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                         const EstimateOptions& options, const OwnRoundings& own_sums, ToleranceFile& file);

}  // namespace ttrace
