// Names that somebody may have meant.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace ttrace {

// At most five of `names` that look most like `pattern`, best first: by the edit distance to the name or to
// what follows one of its dots, up to a third of the pattern's length. Printable.
std::vector<std::string> close_names(const std::string& pattern, const std::set<std::string>& names);

}  // namespace ttrace
