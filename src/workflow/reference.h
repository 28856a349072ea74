// The reference of commands that can do without one.
#pragma once

#include <optional>
#include <string>

#include "ttrace/align/aligned_trace.h"

namespace ttrace {

// None where `path` is empty. Throws InputError where it is not whole.
std::optional<AlignedTrace> read_reference(const std::string& path, const Annotations& annotations);

// What a candidate is aligned with; that of no model where there is no reference.
ModelLayout layout_of(const std::optional<AlignedTrace>& reference);

}  // namespace ttrace
