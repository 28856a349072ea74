// Says how far a number may be off that is left where larger ones nearly cancel: the gradient of a temperature whose
// target is nearly met, or a bias that a step has brought near 0.
#pragma once

#include <optional>
#include <string>

#include "base/alignment.h"
#include "tolerance/estimate.h"

namespace ttrace {

// The most that is taken for such a rounding, relatively. Numbers of fewer bits than that leaves are no sums' remainders:
// 0.5 is as exact as any.
inline constexpr double kMostOfRemainder = 0x1p-13;

// True for gradients of parameters, and for what steps leave of parameters and buffers.
bool may_be_remainder(Kind kind);

// Returns one step of what the elements are multiples of, of such a tensor in fp32 or wider with at most kFewElements;
// absent where that is no more than their own last place, or more than kMostOfRemainder of them.
std::optional<OwnRounding> rounding_of_remainder(const LogicalTensor& tensor);

// True for losses and for what modules return: a criterion's one number.
bool may_cross_zero(Kind kind, const std::string& name);

// Returns, of such numbers in fp32 or wider that are nearer to 0 in one iteration or micro-batch than in another, one
// rounding step of the largest beside the smallest, at most kMostOfRemainder of it.
OwnRoundings roundings_of_crossing(const Alignment& reference);

}  // namespace ttrace
