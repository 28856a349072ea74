// The tensors of a trace that a user names on a command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

struct TensorChoice {
  std::string pattern;  // a glob or dotted suffix; empty: all
  std::optional<Kind> kind = std::nullopt;
  std::optional<std::int32_t> iteration = std::nullopt, microbatch = std::nullopt;
};

// Returns the logical tensors that were chosen, in execution order; at least one. Throws InputError where there is
// none: it says why a tensor of that name could not be put together, or gives names that look alike.
std::vector<const LogicalTensor*> choose_tensors(const Alignment& alignment, const TensorChoice& choice);

}  // namespace ttrace
