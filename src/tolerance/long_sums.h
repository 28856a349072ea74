// Says how far the gradient of a parameter may be off because its terms are added up in another order. The reasons are
// in long_sums.cpp.
#pragma once

#include <optional>

#include "base/alignment.h"
#include "tolerance/estimate.h"

namespace ttrace {

// Returns what adding up its terms one by one leaves of the gradient of a parameter in one micro-batch; absent for what
// is no such sum (a matrix product's), or whose terms the trace does not count.
std::optional<OwnRounding> rounding_one_by_one(const Alignment& alignment, const LogicalTensor& gradient);

}  // namespace ttrace
