// Suggests names for one that was misspelt.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/error.h"

namespace ttrace {

// Returns at most five of `names` that look most like `pattern`, best first and printable. The measure is the edit
// distance to the name or to what follows one of its dots; names further than a third of the pattern's length are left
// out.
std::vector<std::string> close_names(const std::string& pattern, const std::set<std::string>& names);

// Returns what to throw where no tensor of these names matches a pattern that a user typed.
InputError no_such_name(const std::string& pattern, const std::set<std::string>& names);

}  // namespace ttrace
