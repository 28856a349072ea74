// The least that a tensor may differ by, however little the perturbed runs moved it. The reasons are in floors.cpp.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "ttrace/tolerance/estimate.h"

namespace ttrace {

// For each floating-point tensor, the largest of its micro-batches and iterations. `responses` are those
// of all runs and micro-batches.
std::map<ToleranceKey, double> floors_of(std::span<const RunDifferences> perturbed,
                                         const std::map<ToleranceKey, std::vector<double>>& responses,
                                         const EstimateOptions& options);

}  // namespace ttrace
