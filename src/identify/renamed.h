// Gives a rank's tensors other names, wherever its trace has them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/trace.h"

namespace ttrace {

// Returns the new name of a tensor, or of a module, of the model chunk; the same where it keeps its name. No two names
// of a chunk become one.
using NewName = std::function<std::string(std::int32_t chunk, const std::string& name)>;

void rename_tensors(RankTrace& rank, const NewName& new_name);

}  // namespace ttrace
