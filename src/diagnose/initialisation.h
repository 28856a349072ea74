// Tells parameters that were drawn anew from parameters that are wrong.
#pragma once

#include <optional>
#include <string>

#include "base/alignment.h"
#include "base/outcome.h"

namespace ttrace {

// Returns a clause where the runs began with different random parameters, and nothing elsewhere: most of the
// reference's weights are, in its first iteration, unlike the candidate's. Two draws from one distribution have about
// the same norm, and nothing else in common. Only tensors of two or more dimensions count: biases and the weights of
// norms begin as constants.
std::optional<std::string> describe_other_initialisation(const Report& report, const Alignment& reference);

}  // namespace ttrace
