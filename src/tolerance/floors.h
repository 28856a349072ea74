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
                                               const EstimateOptions& options, const OwnRoundings& own_sums);

// Returns, for each tensor that an optimizer's step changes, how far one of its elements may jump, relative to their root
// mean square.
std::map<ToleranceKey, double> largest_step_jumps(std::span<const RunDifferences> perturbed);

// The most that `estimate_floors` asks for because a tensor of so few elements was measured a few times: `largest` is the
// largest response of its group, the tensors of its kind whose names differ in numbers.
double largest_luck(double largest, std::int64_t elements, double margin);

}  // namespace ttrace
