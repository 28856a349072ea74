// Tells where a light iteration differs as where rounding moves an activation over a kink. It has no activations that
// would show it, as whole iterations do (judge/jumps.h).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Returns the main gradient, of `report.findings`, that differs in one channel alone, where everything wrong may follow
// from a kink in its light iteration:
//
// - nothing of another iteration than this one and light ones behind it is wrong, and nothing for another reason than a
//   tolerance that is exceeded;
// - of that iteration no loss is wrong, and the gradients are within a hundredth of the reference's, as where a whole
//   iteration has such a jump; what comes behind, within three times as much, and steps within a hundredth;
// - no root has a cause but that it is wrong in a part of its elements.
//
// Nothing elsewhere. `is_open[i]`: whether finding i is set aside for another reason.
std::optional<std::size_t> find_light_jump(const Report& report, const std::vector<bool>& is_open,
                                           const Evidence& evidence);

}  // namespace ttrace
