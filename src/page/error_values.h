// Shows where the error of a tensor lies, and how large it is there.
#pragma once

#include "base/alignment.h"
#include "base/picture.h"

namespace ttrace {

// Fills what a picture has of the tensors' values. `picture.candidate` says which dimensions are split: those are
// drawn.
void depict_values(const LogicalTensor& reference, const LogicalTensor& candidate, Picture& picture);

}  // namespace ttrace
