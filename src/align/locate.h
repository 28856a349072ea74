// Tells where one rank's shard lies, as far as that rank can tell alone.
#pragma once

#include <vector>

#include "base/alignment.h"
#include "base/annotation.h"
#include "base/mesh.h"

namespace ttrace {

struct Location {
  TensorId id;                // canonical
  Shape shape;                // of the logical tensor
  std::vector<Slice> slices;  // boxes of this shard (`local`) in it (`whole`); elements in no slice are padding
};

// For a rank that is about to perturb or generate its part of a logical tensor. Every other part is taken to have this
// one's shape. There are three things that one rank cannot know:
// - how many layers a stage has, or how many experts a part: numbers stay as they are, which is right for the first
//   chunk of the first stage and the first part only;
// - where packed sequences begin: a dimension of them is taken as one sequence;
// - how many micro-batches the others ran: with `order: blocked` or `slices` and several data-parallel ranks, a
//   tensor of a micro-batch throws.
// Throws InputError as `align` does, and where no shards of this shape make up a tensor.
Location locate(const Annotations& given, const Mesh& mesh, const Coordinates& coordinates, const TensorId& local_id,
                const Shape& local_shape);

}  // namespace ttrace
