// Tells inputs of which ranks lack the last element of samples, where that is a mistake: it may be there for a label
// alone, as where a model is given tokens[:, :-1] of what its rank pads to the longest of its own samples.
#pragma once

#include <span>
#include <vector>

#include "judge/judge.h"

namespace ttrace {

// Makes such an input (LogicalTensor::truncated) wrong where the loss and a gradient that a step takes are wrong, though
// what comes back to the model's outputs is right as far as the ranks have them: what is wrong is what they lack. A loss
// that is computed otherwise sends other gradients back.
void find_truncated_by_one(std::span<const TensorPair> pairs, std::vector<Finding>& findings);

}  // namespace ttrace
