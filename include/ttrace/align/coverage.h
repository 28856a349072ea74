// Do boxes fill a tensor exactly once?
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

struct Region {
  Box box;
  std::vector<std::size_t> holders;  // which of the boxes hold all of it; none for a gap
  friend bool operator==(const Region&, const Region&) = default;
};

struct Coverage {
  std::vector<Region> gaps;          // filled by none
  std::vector<Region> overlaps;      // filled by two or more
  std::vector<std::size_t> outside;  // boxes that do not lie in the shape, or have another number of dims
  bool exact() const { return gaps.empty() && overlaps.empty() && outside.empty(); }
};

// Exact for any set of boxes: every element of the shape is accounted for, none is sampled. n boxes that
// form a grid cost O(n log^2 n). Neighbouring regions with the same holders are reported as one where
// they form a box.
Coverage cover(const Shape& shape, std::span<const Box> boxes);

}  // namespace ttrace
