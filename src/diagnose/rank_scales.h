// Main gradients that each rank has scaled by a number of its own, such as those clipped by the norm of its own shards.
#pragma once

#include <optional>
#include <vector>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Says of the roots that are main gradients of one iteration, where none is explained otherwise than by a factor or a
// region, by which numbers they are the reference's: one a rank, the same in all of them. The numbers are fitted to all
// tensors together, and each must be what they make of the reference's. That the ranks clip by norms of their own is
// said only where what they would then have holds: main gradients of the reference's norm, each by itself. `diagnoses`
// are of the report's roots.
void add_rank_scales(const Report& report, const Evidence& evidence, std::vector<std::optional<Diagnosis>>& diagnoses);

}  // namespace ttrace
