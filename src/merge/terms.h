// What a parameter's main gradient is the sum of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

using ParameterOfIteration = std::pair<std::int32_t, std::string>;  // iteration, name

// Each parameter's gradients in an iteration, by micro-batch. A look at all identities, and at no value.
std::map<ParameterOfIteration, std::vector<const LogicalTensor*>> terms_of_main_gradients(const Alignment& alignment);

}  // namespace ttrace
