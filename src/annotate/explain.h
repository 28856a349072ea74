// Explains in words how a tensor's shards were mapped, to a person who doubts an annotation.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "align/aligned_trace.h"

namespace ttrace {

struct ExplainedSide {
  std::string_view name;  // "reference", "candidate"
  const AlignedTrace& aligned;
  // Holds, for a side in the names of another program, what each tensor was recorded as: annotations are about that.
  const std::map<TensorId, std::vector<TensorId>>* recorded_as = nullptr;
};

// Describes each tensor whose name matches `pattern` (as in annotations), by name and kind: the rule that placed it,
// then for each side its identities and shape, what each axis of the mesh does, and its first pieces. Where a tensor
// could not be mapped, the text gives the finding. Throws InputError, with names that look alike, when no side has
// such a tensor.
std::string explain(const Annotations& annotations, std::span<const ExplainedSide> sides, const std::string& pattern);

}  // namespace ttrace
