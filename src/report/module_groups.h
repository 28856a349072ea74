// Sums up wrong tensors by groups of modules, for a summary that does not list one cascade tensor by tensor.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/outcome.h"

namespace ttrace {

// The modules whose paths begin alike: up to one component behind the first number, or two components where there is
// none. `name` has the numbers of those with wrong tensors: `decoder.layers.0-3,7.self_attention`.
struct ModuleGroup {
  std::string name;
  std::int64_t wrong = 0, tensors = 0;  // of all kinds; an iteration's and a micro-batch's are tensors of their own
  bool is_missing = true;               // all of the wrong ones
  double ratio = 0;                     // the largest error, in units of what is allowed; 0 where none was measured
  std::set<Kind> kinds;                 // of the wrong ones
};

// Returns the groups with wrong tensors, in the order of the first of them. Findings about ranks are in none.
std::vector<ModuleGroup> groups_of(const Report& report);

}  // namespace ttrace
