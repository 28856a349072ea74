// Finds parameters that a program shares between pipeline stages, by their bits.
#pragma once

#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

struct SharedParameter {
  std::string name, of;  // as in TiedRule
};

// Returns the parameters that the optimizer changed and that hold the bits of another one in all recorded iterations,
// before its step and after it, though no `tied` says so. Where there is a `reference` (else null), `name` is one that
// it lacks, and `of` one that it has; two that it has both are two there as well.
std::vector<SharedParameter> find_shared_parameters(const Alignment& aligned, const Alignment* reference);

}  // namespace ttrace
