// Which of the reference's rows those are that a program has computed: rounding keeps them from being the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// The rows along a dimension of a row-major tensor of floating-point elements, with a hash each.
struct HashedRows {
  const std::byte* data = nullptr;
  Shape shape;
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::uint64_t> hashes;
};

// Gives each row of `parts` that is none of the reference's, bit for bit, the hash of the only one of its rows that is
// within a hundredth of it, where every other one is a hundred times as far away. Does nothing where so many rows would
// take long.
void take_hashes_of_near_rows(const HashedRows& whole, std::vector<HashedRows>& parts, std::size_t dim);

}  // namespace ttrace
