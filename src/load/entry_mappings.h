// What the program said of its tensors' places.
#pragma once

#include <string_view>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

// Sets the mapping of each entry: `texts` has one for each, empty for none. Each different text is parsed
// once. The entries must have been checked. Throws InputError (`where` is the file) for the first text that
// is no mapping, or not one of its entry.
void set_mappings(std::vector<Entry>& entries, const std::vector<std::string_view>& texts, std::string_view where);

}  // namespace ttrace
