// Finds how far single elements of a right update may be from the reference's.
//
// Adam divides a gradient by its own size: an element whose gradient is about as small as eps, or as what rounding
// changes it by, jumps by up to twice the learning rate where its gradient differs by no more than it may. One such
// element can have most of an update's error, and three perturbed runs need not have met it. The reference's own
// gradient and state say how far an element of it can jump.
#pragma once

#include <map>

#include "align/aligned_trace.h"
#include "judge/judge.h"
#include "step/compared.h"

namespace ttrace {

// Returns, for each update of `proved` that exceeds its tolerance, or whose parameter does, the largest jump of one
// element (step/replay.h), in units of the update. The error of the gradient is what its tolerance allows of an
// element; where that has none, there is no jump. Tolerances must be there.
std::map<TensorId, double> find_jumps(const AlignedTrace& reference, const Compared& compared,
                                      const std::map<TensorId, std::vector<TensorId>>& proved);

}  // namespace ttrace
