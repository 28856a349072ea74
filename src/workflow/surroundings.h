// Compares what surrounds the computations of two runs: versions, settings of PyTorch, the environment, the command.
#pragma once

#include <vector>

#include "base/configuration.h"
#include "base/trace.h"

namespace ttrace {

// What both traces say, and say otherwise; of the commands, the words that only one of them has.
std::vector<OtherSurrounding> compare_surroundings(const Trace& reference, const Trace& candidate);

}  // namespace ttrace
