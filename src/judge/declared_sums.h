// Names the sums by which annotations can bless a bug.
#pragma once

#include <string>
#include <vector>

#include "align/aligned_trace.h"

namespace ttrace {

// The optimizer of each rank uses the gradient that the rank holds. An annotation that adds up what the ranks of an
// axis hold of a parameter, its main gradient or its step therefore declares right what no optimizer saw: an all-reduce
// that was forgotten looks the same. So does a sum of what backward left (`param_grad`), where the trace has neither
// the main gradient nor the step to show that the program makes it. Presets and drafts never say so. Returns a note for
// each line of `annotations` that does, for tensors of `candidate` that no mapping of the program's own places, and one
// for those that such a mapping calls terms of a sum: a gradient that backward left so may be reduced yet.
std::vector<std::string> notes_of_declared_sums(const Annotations& annotations, const AlignedTrace& candidate);

}  // namespace ttrace
