// Losses that are wrong, of which their gradients tell why.
#pragma once

#include <optional>
#include <vector>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Says of the roots that are losses, where no hypothesis about the one number holds: which loss of a module counts
// otherwise in it; or what is wrong of the first gradient of its micro-batch that differs, which has more numbers. There
// is none where the loss alone is wrong. `diagnoses` are of the report's roots.
void add_gradients_of_losses(const Report& report, const Evidence& evidence,
                             std::vector<std::optional<Diagnosis>>& diagnoses);

}  // namespace ttrace
