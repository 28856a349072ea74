// Tells who every recorded tensor of a trace is: the first step of an alignment (align/shard_mapping.cpp).
#pragma once

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/identity.h"
#include "identify/resolved_annotations.h"

namespace ttrace {

// The grouping points into the annotations, and all of it into the rank table: to be moved, not to be copied.
struct Identification {
  ResolvedAnnotations annotations;  // with only those of the declared ties that hold
  Census census;
  Grouping grouping;
};

// `annotations` are checked and of the table's mesh; `threads` as in `parallel_for`. Throws InputError as `align` does.
Identification identify(const RankTable& ranks, ResolvedAnnotations annotations, const ModelLayout& layout,
                        int threads);

}  // namespace ttrace
