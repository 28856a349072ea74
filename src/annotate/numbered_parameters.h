// Finds how one parameter holds what modules with a number have one each, such as experts.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "annotate/parameter_counterparts.h"

namespace ttrace {

// `whole` is of the side `side_of_whole` (0: the reference's), `parts` are of the other. Parts of several names, as w1
// and w3 of each expert, lie one after the other. Nothing where no such pattern makes all values equal, rounded to
// `dtype`.
std::optional<ParameterMatch> match_numbered(const std::vector<const LogicalTensor*>& parts, const LogicalTensor& whole,
                                             std::size_t side_of_whole, std::optional<Dtype> dtype);

}  // namespace ttrace
