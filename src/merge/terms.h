// The terms of main gradients.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

using ParameterOfIteration = std::pair<std::int32_t, std::string>;  // iteration, name

// The gradients that each parameter has in an iteration, in order of the micro-batch; their sum should be its main
// gradient. Looks at all identities, and at no values.
std::map<ParameterOfIteration, std::vector<const LogicalTensor*>> terms_of_main_gradients(const Alignment& alignment);

}  // namespace ttrace
