// Estimates floors: the least that a tensor may differ by, however little the perturbed runs moved it. The reasons are
// in floors.cpp.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "ttrace/tolerance/estimate.h"

namespace ttrace {

// Returns the floor of each floating-point tensor, the largest over its micro-batches and iterations. `responses` holds
// those of all runs, micro-batches and iterations.
std::map<ToleranceKey, double> estimate_floors(std::span<const RunDifferences> perturbed,
                                               const std::map<ToleranceKey, std::vector<double>>& responses,
                                               const EstimateOptions& options);

// Returns, for each tensor that an optimizer's step changes, how far one of its elements may jump, relative to their root
// mean square.
std::map<ToleranceKey, double> largest_step_jumps(std::span<const RunDifferences> perturbed);

// The most that `estimate_floors` asks for because a tensor of so few elements was measured a few times: `samples` are the
// largest responses of the runs.
double largest_luck(const std::vector<double>& samples, std::int64_t elements, double margin);

}  // namespace ttrace
