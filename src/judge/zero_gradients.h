// Finds parameters of which nothing but zeros was recorded as gradients: behind what begins at zero, such as the B of a
// LoRA, gradients are zero in the first iteration, and no mistake with them shows.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"

namespace ttrace {

// `doubts` says why each floating-point tensor proves nothing; empty: it does. Families whose gradients are zero in
// three iterations or more are zero by design, as of a loss that is multiplied by 0: they become a note.
std::optional<ZeroGradients> find_zero_gradients(const std::map<TensorId, std::string>& doubts,
                                                 std::vector<std::string>& notes);

}  // namespace ttrace
