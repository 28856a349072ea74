// Settles which micro-batches the ranks of a reference ran, where they are data-parallel and nothing of the reference
// says so.
#pragma once

#include <string>

#include "align/aligned_trace.h"

namespace ttrace {

// Aligns the reference again where the integer inputs of the candidate, a directory whose own order is known, say that
// its ranks ran consecutive micro-batches, or slices, and adds a note. Where nothing tells, `open_order` of its
// alignment is left; else it is empty. `correspondence` is empty where both sides have the same names. Throws as
// `read_trace`, `align_trace` and `load_correspondence` do.
void settle_order_of_reference(AlignedTrace& reference, const Annotations& of_reference, const std::string& candidate,
                               const Annotations& of_candidate, const std::string& correspondence);

}  // namespace ttrace
