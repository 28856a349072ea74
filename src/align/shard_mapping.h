// The canonical shard mapping (TTrace, section 4.1). It says which box of which rank's tensor is which box of the
// logical tensor.
#pragma once

#include "base/alignment.h"
#include "base/annotation.h"
#include "base/trace.h"

namespace ttrace {

// The pieces point into the trace: `AlignedTrace` holds both. Throws InputError when the annotations
// contradict the trace (an axis that it lacks, a dim out of range for a matching tensor, layers that do not
// divide into the stages) or the trace's mesh contradicts itself. `threads`: 0 is OpenMP's default; the alignment, or
// the error, is the same for any number.
Alignment align(const Trace& trace, const Annotations& given, const ModelLayout& layout, int threads = 0);

}  // namespace ttrace
