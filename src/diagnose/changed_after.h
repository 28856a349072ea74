// Tells what differs between ranks because the program changes parameters after their optimizer's step.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnose/diagnosis.h"

namespace ttrace {

// True for the gradient of a step of which each rank has its own, where every rank's parameter was changed after the step
// and the update, which has both, is the reference's: ranks that average parameters in place of gradients (local SGD)
// hold such. An element whose step does not depend on how large its gradient is hides a gradient that was to be averaged.
bool is_averaged_after(const Finding& finding, const Report& report, const Evidence& evidence);

// Returns the ranks whose update, or parameter after it, holds more than the step: those that have no later iteration
// where others have, and whose parameter was changed after it, of copies that differ. A rank without a further batch is
// given the others' values so (torch's Join).
std::vector<std::int32_t> ranks_that_ended_early(const Finding& finding, const Evidence& evidence);

}  // namespace ttrace
