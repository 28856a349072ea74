// A trace together with its logical tensors, whose pieces point into it: the two live and move as one.
#pragma once

#include <memory>

#include "base/alignment.h"

namespace ttrace {

struct AlignedTrace {
  std::unique_ptr<const Trace> trace;
  Alignment alignment;
};

// Settles the axes of the trace (align/program.h) and aligns it on so many threads, 0 as for `align`; throws as
// these do.
AlignedTrace align_trace(Trace trace, const Annotations& annotations, const ModelLayout& layout = {}, int threads = 0);

// The same for a trace that others are measured against, whose axes annotations mean: throws InputError also where the
// alignment has findings, but for tensors of which the trace says that some ranks could not see their part.
AlignedTrace align_whole(Trace trace, const Annotations& annotations, const ModelLayout& layout = {}, int threads = 0);

}  // namespace ttrace
