// Assembles one logical tensor from its shards.
#pragma once

#include <optional>
#include <vector>

#include "align/dimension.h"
#include "align/frame.h"
#include "align/sequences.h"
#include "identify/identity.h"

namespace ttrace {

// Everything that is the same for all tensors of a trace.
struct AssemblyContext {
  const RankTable& ranks;
  const ResolvedAnnotations& annotations;
  LengthTensors lengths;
  const Pipeline& pipeline;
  const Microbatches& microbatches;
  FrameAxes axes;
  DimensionPool& dimensions;
};

// The tensor, or the findings about its shards.
struct Assembly {
  std::optional<LogicalTensor> tensor;
  std::vector<Finding> findings;
};

// `group` has at least one shard. Several threads may assemble groups of one context. Throws InputError when the rule's
// dim is out of range for the tensor.
Assembly assemble(Group group, const AssemblyContext& context);

}  // namespace ttrace
