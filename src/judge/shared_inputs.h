// Tells gradients of a tensor that the reference hands to several modules, or functions, and of which ranks have a copy
// each, or one that is made of it: the time step that is passed on from stage to stage beside the activations, the scores
// of all ranks that a criterion is given beside another that takes each rank's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

// Makes untrusted the gradients of inputs that differ, where the reference gives the same bytes to another module in the
// micro-batch, and in the candidate other ranks hold that module's: the gradient that was recorded is the tensor's, of
// all modules that it was handed to, and the ranks' are of some. Only where training is right, or their sum is: the
// gradient of the output with these bytes, or of another module's input that has all of it. The same goes for an output
// that the reference hands on, by the bits of its gradient, where ranks hand on other bytes than those of their output,
// or send it to others, and the output's gradient is right; and for any whose output's gradient is all of it, and right,
// unless it is a multiple of the reference's. Never one that is right in another micro-batch. Says so in `notes`.
void set_shared_gradients_aside(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                                std::vector<std::string>& notes);

}  // namespace ttrace
