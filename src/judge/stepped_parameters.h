// Tells parameters that right steps left of others, and what was computed with them.
//
// A parameter at the beginning of an iteration is what the step before it left: one tensor, recorded twice. Where an
// element's gradient is about as small as its own rounding, Adam's step jumps (step/jumps.h), and three perturbed runs
// need not have met such an element. After the step that is allowed; what the runs moved the parameter by in the next
// iteration says nothing of it. In a convolution of a diffusion model that began with zeros four of 9,216 elements, with
// gradients of 1e-11 to 1e-8 beside 7e-6 in root mean square, had 86 % of the error.
//
// What an iteration computes answers its parameters, linearly where these differ by little: where one is r times as far
// from the reference's as the runs allow, the iteration's activations and gradients may be r times as far. Errors grow
// in each run in its own way, but what a wrong step does is larger still: r is at most kLightSlack.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "judge/judge.h"

namespace ttrace {

// Lets a parameter pass that exceeds its tolerance where it is, on both sides, to the last bit the one after the step of
// the iteration before, and where that, its step and all that the step was computed from are right and proved; and then
// what its iteration computed, within r times its tolerance. Says so in `notes`.
void pass_stepped_parameters(std::span<const TensorPair> pairs, const StepVerdicts& steps,
                             std::vector<Finding>& findings, std::vector<std::string>& notes);

}  // namespace ttrace
