// Lists the placements that the shapes of shards and reference allow.
#pragma once

#include <string>
#include <vector>

#include "annotate/subjects.h"
#include "base/mesh.h"

namespace ttrace {

using Placements = std::vector<AxisPlacement>;  // as a rule has them: outermost first

// The axes and layouts that a rule may name.
struct PlacementChoices {
  // Holds, for each factoring of the ranks, its axes that have more than one rank and are not the pipeline's stages. A
  // rule names axes of one factoring. The mesh's own axes come first.
  std::vector<Axes> factorings;
  // Where a rule names none of them, their ranks work on different micro-batches.
  std::vector<std::string> microbatch_axes;
  std::vector<std::string> layouts;  // the likelier first
};

// The factorings of the mesh, without axes of one rank. One that tells no ranks apart but as the mesh's own axes do, by
// the experts' names of these (etp, edp), is left out: which of the two a tensor uses cannot be told, and does not
// matter.
std::vector<Axes> distinct_factorings(const Mesh& mesh);

bool is_microbatch_axis(const PlacementChoices& choices, const std::string& axis);

// Returns the possible placements, the likelier first. A dimension in which shard and reference differ is split, and no
// other is. Parameters and main gradients are never partial: where the ranks' main gradients have yet to be added,
// somebody forgot to add them. There are none for packed sequences.
std::vector<Placements> hypotheses_for(const Subject& subject, Kind kind, const PlacementChoices& choices);

// Says what `placements` do with `axis`: "replicate", "partial", "dim 0", "dim 0 zigzag", "dim 0 inside 1 other" where
// an outer axis splits the same dimension; "" where they do not name it.
std::string role_of(const Placements& placements, const std::string& axis);

// The roles of all axes as one text, which is equal for two placements that do the same with a tensor. An axis that
// `placements` do not name replicates; or its ranks work on different micro-batches, where it is the micro-batch axis
// and on the factoring of the named axes.
std::string equivalence_key(const Placements& placements, const PlacementChoices& choices, bool in_microbatches);

// Returns the placement as a rule writes it: `tp_dim: 0`, `cp: {dim: 0, layout: zigzag}`, `tp: partial`.
std::string to_string(const AxisPlacement& axis);

// Returns how a tensor of kind `follower` is placed by a rule about `lead`, such as a gradient by the rule of its
// value. Axes over which an activation is partial replicate its gradient: the gradient of a sum is that of each of its
// terms.
Placements follower_placements(Placements placements, Kind lead, Kind follower);

}  // namespace ttrace
