// Tells whether boxes fill a tensor exactly once.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

struct Region {
  Box box;
  std::vector<std::size_t> holders;  // indexes of the boxes that hold all of it; empty for a gap
  friend bool operator==(const Region&, const Region&) = default;
};

struct Coverage {
  std::vector<Region> gaps;      // regions that no box fills
  std::vector<Region> overlaps;  // regions that two or more boxes fill
  std::vector<std::size_t>
      outside;  // indexes of boxes that do not lie in the shape, or have another number of dimensions
  bool exact() const { return gaps.empty() && overlaps.empty() && outside.empty(); }
};

// Exact for any set of boxes: every element of the shape is accounted for, none is sampled. n boxes that
// form a grid cost O(n log^2 n). Neighbouring regions with the same holders are joined where they form a box.
Coverage cover(const Shape& shape, std::span<const Box> boxes);

}  // namespace ttrace
