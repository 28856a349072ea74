// How one tensor's shards were mapped, in words: for a person who doubts an annotation.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ttrace/align/aligned_trace.h"

namespace ttrace {

struct ExplainedSide {
  std::string_view name;  // "reference", "candidate"
  const AlignedTrace& aligned;
};

// For each tensor whose name matches `pattern` (as in annotations), by name and kind: the rule that placed
// it, then for each side its identities and shape, what each axis of the mesh does, and its pieces; the first
// pieces of many. What could not be mapped stands there with its finding. Throws InputError, with names
// that look alike, when no side has such a tensor.
std::string explain(const Annotations& annotations, std::span<const ExplainedSide> sides, const std::string& pattern);

}  // namespace ttrace
