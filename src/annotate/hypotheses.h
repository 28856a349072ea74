// The placements that the shapes allow.
#pragma once

#include <string>
#include <vector>

#include "annotate/subjects.h"
#include "ttrace/mesh.h"

namespace ttrace {

using Placements = std::vector<AxisPlacement>;  // as a rule has them: outermost first

// What a rule may say of a tensor.
struct Choices {
  // The axes of more than one rank, the pipeline's stages aside, of each factoring of the ranks: a rule names those of
  // one. The mesh's own come first.
  std::vector<Axes> factorings;
  std::string microbatch_axis;  // left unnamed, it tells micro-batches apart
  // One that a rule may say replicates where it must say something and there is nothing to say: it does, or
  // the trace lacks it.
  std::string spare_axis = "tp";
  std::vector<std::string> layouts;  // the likelier first
};

// The likelier first. A dimension in which shard and reference differ is split, and no other is. A parameter,
// and what an optimizer works with, is no sum: where the ranks' main gradients have yet to be added, somebody
// forgot to.
std::vector<Placements> hypotheses_for(const Subject& subject, Kind kind, const Choices& choices);

// What `placements` do with `axis`: "replicate", "partial", "dim 0", "dim 0 zigzag"; "" for what they do not
// name; with the place among several that split one dimension.
std::string role_of(const Placements& placements, const std::string& axis);

// The same for all axes: equal where two placements of one tensor are. An axis that they do not name
// replicates, or tells micro-batches apart where it is on the factoring of those that they name.
std::string key_of(const Placements& placements, const Choices& choices, bool in_microbatches);

// As a rule writes it: `tp_dim: 0`, `cp: {dim: 0, layout: zigzag}`, `tp: partial`.
std::string to_string(const AxisPlacement& axis);

// What a gradient takes over from its value: the gradient of a sum is the same for each of its terms.
Placements followed(Placements placements, Kind value, Kind gradient);

}  // namespace ttrace
