// Moves the pieces of tensors into the index space of others, as a pattern says. Nothing is copied: a transposition
// permutes the dimensions of boxes and their strides, a product of axes cuts boxes, a sum shifts them or cuts a part
// out.
#pragma once

#include <memory>
#include <vector>

#include "base/alignment.h"
#include "correspond/sizes.h"

namespace ttrace {

// One tensor of a side, and the values of the axes that its name numbers: expert 3 has {"e": 3}.
struct PatternTensor {
  std::size_t tensor = 0;
  AxisSizes fixed;
};

// Holds what all tensors of one rearrangement share.
struct Rearrangement {
  IndexPattern pattern;
  std::size_t from = 0;  // the side that the pieces lie on; the other is `1 - from`
  std::size_t ellipsis = 0;
  AxisSizes sizes;  // of all axes
};

// The pieces of `source`, as far as they lie in `target`, in the index space of that one, without its padding. Where
// the target is one of several copies of the source, or the source of the target, they are all of them.
std::vector<Piece> rearranged(const Rearrangement& how, const PatternTensor& source, const std::vector<Piece>& pieces,
                              const PatternTensor& target);

}  // namespace ttrace
