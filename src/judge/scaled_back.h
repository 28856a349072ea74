// Tells numbers and gradients that have another factor than the loss scale says, and are right by what is beside them: a
// loss that a program multiplies after its model has returned it, as trainers do that average tokens over ranks, the
// gradients of parameters outside of the wrapper that averages, and those of an inner `autograd.grad`, which are none of
// the loss.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

// Lets a single number that a module returns, and the gradient that comes back to it, pass where one is the reference's
// times a whole number, or one over it, and the other the reference's divided by that, each within its tolerance; where
// all other gradients of the micro-batch are the reference's, and so is what `backward()` was called on. By the chain
// rule the program multiplies the number by what it lacks. Says so in `notes`.
void pass_scaled_back(std::vector<Finding>& findings, std::vector<std::string>& notes);

// Lets a single number that a module returns on each rank, and the gradient that comes back to it, pass where each rank has
// its own: the numbers, each times its gradient, have the mean, or the sum, of the reference's number times its gradient,
// and so have the gradients by themselves, which are unlike. By the chain rule the program takes the numbers' mean,
// weighted: that of tokens, of which the ranks have unlike counts. Says so in `notes`. A number passes as well where each
// rank has the reference's, as where all samples are alike.
void pass_weighted(std::span<const TensorPair> pairs, std::vector<Finding>& findings, std::vector<std::string>& notes);

// Lets gradients of parameters that ranks divide pass that are what was recorded of the reference's, without the loss scale,
// where a step takes these very bits on each rank, and what it takes is right: no wrapper averages them, so that the
// backward into them has left the factor out. Says so in `notes`.
void pass_taken_as_recorded(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                            std::vector<Finding>& findings, std::vector<std::string>& notes);

// Lets gradients of activations pass that are what was recorded of the reference's, without the loss scale, where those
// of the iteration's parameters are nearer to it with the scale. In one backward these are made of those: so they are of
// an inner `autograd.grad`, which begins at other numbers than the loss, and the parameters' are of the backward through
// it, as of a gradient penalty or of forces. Others of the micro-batch may be of that backward, right or wrong.
// A module's gradients are of one backward, and so are layers': where one of them has the scale, the others that ranks
// divide are to have it, too. They are compared again without it, and judged by `tolerance`.
void pass_inner_gradients(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                          std::vector<Finding>& findings, std::vector<std::string>& notes);

}  // namespace ttrace
