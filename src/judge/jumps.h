// Gradients that jump where an activation is zero.
//
// The gradient through a ReLU, a leaky one or another function with a kink at zero is not continuous: where rounding
// moves an activation over zero, the gradient of that element is another by any factor, and all gradients behind it in
// the backward, and all that follows from the step, have a part of that. In fp32 one of some 10^6 activations lies so
// near, so that a large network has one now and then, and perturbed runs have theirs at others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/finding.h"
#include "compare/compare.h"
#include "judge/judge.h"

namespace ttrace {

// Behind a larger jump, of the tensor that jumps, mistakes would hide.
inline constexpr double kLargestJump = 0.01;
// What comes behind a jump may differ by so many times as much.
inline constexpr double kReachOfJump = 3;

// Lets a gradient of an activation pass that is wrong in a few elements alone, at each of which the activation itself,
// which passes, is positive on one side and not on the other, or its difference from another one of the micro-batch is,
// as in an L1 loss; and what comes behind it, where it differs by no more than three times as much. A jump of more than
// 1 % is noted, and nothing passes for it. `findings` have the order of execution. Notes where the first jump is.
void pass_behind_jumps(std::span<const TensorPair> pairs, const StepVerdicts& steps, std::vector<Finding>& findings,
                       std::vector<std::string>& notes);

// True where such a note says that this gradient, which did not pass, is one that jumps: by too much.
bool is_noted_jump(const TensorId& id, const std::vector<std::string>& notes);

}  // namespace ttrace
