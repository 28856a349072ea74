// Compares tensors of which a side was recorded as a sketch. A side that holds elements is sketched here.
#pragma once

#include "compare/compare.h"

namespace ttrace {

// Tells whether, of two replicas, that of `a` differs more from the reference.
bool is_worse(const Difference& a, const Difference& b);

// `why_not_by_sketches` of the pair must be empty. Throws InputError where what a file holds is no sketch or, with
// `checksums`, is not what was recorded.
Difference compare_sketches(const TensorPair& pair, bool checksums);

}  // namespace ttrace
