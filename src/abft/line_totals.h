// Adds up the lines of a matrix from the sums of their parts, which tiles give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abft/checksum.h"
#include "abft/tile_kernel.h"

namespace ttrace::abft {

// Makes `sums` those of no elements yet, of `count` lines: the ones that `reading` asks for, the others empty.
void begin(PartialSums& sums, std::size_t count, const Reading& reading);

// Different threads may add and finish different lines. Parts are added in their order in the line, so that the sums
// are the same whoever adds them.
class LineTotals {
 public:
  // Begins `count` lines; `reading` says which sums their parts will have.
  void begin(std::int64_t count, const Reading& reading);

  // Adds to each of `count` lines from `first` on its part, from number `first_part` on. The part has `start` elements
  // of the line before it.
  void add(std::size_t first, std::size_t count, const PartialSums& parts, std::size_t first_part, std::int64_t start);
  // Likewise the numbers of elements that are not finite; `parts` is empty if there are none.
  void add_nonfinite(std::size_t first, std::size_t count, const std::vector<std::int64_t>& parts,
                     std::size_t first_part);

  // Writes to `lines` the `count` lines from `first` on, which have `length` elements each.
  void finish(std::size_t first, std::size_t count, std::int64_t length, std::vector<LineStatistics>& lines) const;

 private:
  PartialSums sums_;
  std::vector<std::int64_t> nonfinite_;
};

}  // namespace ttrace::abft
