// Reads the reference for commands that can do without one.
#pragma once

#include <optional>
#include <string>

#include "align/aligned_trace.h"

namespace ttrace {

// Returns nothing where `path` is empty. What is no trace is read with `python` (workflow/saved.h). Throws InputError where the trace is not whole.
std::optional<AlignedTrace> read_reference(const std::string& path, const Annotations& annotations,
                                           const std::string& python = "");

// Returns the layout that a candidate is aligned with; an empty one where there is no reference.
ModelLayout layout_of(const std::optional<AlignedTrace>& reference);

}  // namespace ttrace
