// Parses the mappings that the program recorded with its tensors.
#pragma once

#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Sets the mapping of each entry from `texts`, which has one text for each entry, empty for none. Each different text
// is parsed once. The entries must have been checked. Throws InputError (`where` is the file) for the first text that
// is no mapping or does not fit its entry.
void set_mappings(std::vector<Entry>& entries, const std::vector<std::string_view>& texts, std::string_view where);

}  // namespace ttrace
