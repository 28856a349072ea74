// Tells what is off by a few roundings and is all that is wrong: a sum that a program takes in another order outside of its
// modules (the mean that its samples are standardised by), or the terms of a gradient, which no perturbed run adds up in
// another order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

// True for what exceeds the tolerance of its norm, and of nothing else that is judged before it, by at most so many rounding
// steps of its dtype, which is fp32 or wider, and in more than one of `in_each` elements.
bool is_off_by_steps(const Finding& finding, Dtype dtype, double steps, std::int64_t in_each);

// Lets inputs of modules and gradients of parameters pass that are off by rounding, where nothing else is wrong: in fp32 or
// wider, by at most kMostRoundingSteps of their dtype in norm, in many elements, and gradients not by a factor. Says so in
// `notes`.
inline constexpr double kMostRoundingSteps = 8;
void pass_rounding_alone(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                         std::vector<std::string>& notes);

}  // namespace ttrace
