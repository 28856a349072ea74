// Finds the parts of the model that the perturbation does not reach.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tolerance/estimate.h"

namespace ttrace {

// Returns a note for each topmost module of which no run moved a floating-point output, nor one of the modules inside
// it, and a note for the parameters whose gradients no run moved. Tensors of zeros do not count: nothing moves them.
std::vector<std::string> note_unreached(std::span<const RunDifferences> perturbed, const EstimateOptions& options);

// True for activations and gradients, of which `roundings_of_unreached` may have some.
bool may_be_unreached(Kind kind);

// Returns what the closed form (default_tolerance.h) says that activations which no run moved are off by, and the
// gradients of such calls, and of the parameters of such modules, that none moved either.
OwnRoundings roundings_of_unreached(std::span<const RunDifferences> perturbed, const EstimateOptions& options);

}  // namespace ttrace
