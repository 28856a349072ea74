// Elements that two neighbours along an axis both hold: what a convolution is given of the ranks beside it.
#pragma once

#include <cstdint>

#include "identify/identity.h"

namespace ttrace {

// True where each shard ends, in dimension `dim`, with the `overlap` elements with which the next one begins, bit for
// bit, and these are not all one number. `placement` splits the dimension over one axis, and each shard is longer.
bool neighbours_share(const Group& group, const TensorPlacement& placement, int dim, std::int64_t overlap);

}  // namespace ttrace
