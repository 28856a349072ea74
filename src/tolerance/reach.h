// Which parts of the model the perturbation does not reach.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ttrace/tolerance/estimate.h"

namespace ttrace {

// One note for each topmost module none of whose floating-point outputs any run moved, nor those of the modules inside
// it; one for the parameters whose gradients none moved. Tensors of zeros do not count: nothing moves them.
std::vector<std::string> notes_on_reach(std::span<const RunDifferences> perturbed, const EstimateOptions& options);

}  // namespace ttrace
