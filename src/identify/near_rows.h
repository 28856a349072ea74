// Which of the reference's rows those are that a program has computed: rounding keeps them from being the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/trace.h"
#include "identify/samples.h"

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

// The rows of a tensor along the dimension that the ranks hold parts of, by hashes: in the reference, and on each rank, where
// one that is near a reference's has its hash.
struct HeldRows {
  std::vector<std::uint64_t> whole;
  std::vector<std::vector<std::uint64_t>> parts;
};

// Nothing where the ranks have not all recorded the reference's elements of the dimension, in its dtype and shape.
std::optional<HeldRows> held_rows(const SlicedInput& tensor);

// True where all ranks hold the reference's rows of the first dimension in this order, each within a hundredth of its row.
bool holds_rows_so(const SlicedInput& tensor, const Samples& order);

// How many ranks hold the reference's rows in this order.
std::ptrdiff_t count_of_ranks(const HeldRows& rows, const Samples& order);

}  // namespace ttrace
