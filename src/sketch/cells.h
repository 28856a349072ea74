// Cell sketches: what `ttrace collect --sketch` records of a large tensor in place of its elements.
//
// A local tensor is cut into cells: boxes of at most 16,384 elements, from its first element on. Of each cell 16 signed
// sums are kept, with the exact sum of squares, the largest magnitude and the number of elements that are NaN or Inf
// (which the others leave out). Element q of a cell, row-major in the whole cell, belongs to sum
//
//   (q mod 16) xor lane[q / 128]        with the sign sign[q / 16] bit (q mod 16)
//
// of one table for all cells, tensors, ranks and runs: version 1 of it is made by `mix64` in src/sketch/signs.h. So a
// sketch is linear: those of shards are cells of the whole tensor's, and those of terms add up. Nothing of where a
// shard lies is needed to make it, as long as its borders fall on borders of cells. ||S(a) - S(b)||^2 estimates ||a -
// b||^2 without bias (the sums are AMS sketches: Alon, Matias, Szegedy, "The space complexity of approximating the
// frequency moments", 1999; how far it is off is in src/sketch/error.h). The lanes keep a column from filling one sum
// alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "numeric/dtype.h"
#include "numeric/shape.h"

namespace ttrace {

inline constexpr std::size_t kCellSums = 16;
inline constexpr std::int64_t kMostCellElements = 16384;
inline constexpr std::int64_t kChunkElements = 128;      // of consecutive elements of a cell: a step of the sketch
inline constexpr std::int64_t kLeastSketched = 1 << 16;  // elements: of a smaller tensor the estimate is too rough

struct Cell {
  std::array<double, kCellSums> sums{};
  double square = 0;   // of the finite elements
  double largest = 0;  // their largest magnitude
  std::int64_t nonfinite = 0;

  friend bool operator==(const Cell&, const Cell&) = default;
};

// True for fp64, fp32, fp16 and bf16.
bool can_be_sketched(Dtype dtype);

// The sizes of a cell, one a dimension: 128 of the last dimension, 128 of the largest of the others, 1 of the rest; of
// a smaller dimension the power of two that holds it. Nothing where the tensor is to be recorded whole: it is small, of
// another dtype or of one dimension, its sketch would be more than a sixteenth of it, or it may be a router's scores,
// whose elements are asked for: of two or three dimensions, the last of 256 or less.
std::optional<Shape> cell_edges(Dtype dtype, const Shape& shape);

// Says why these cannot be the edges of cells of a tensor of this shape; empty where they can: powers of two, whose
// product is at most kMostCellElements.
std::string objection_to_edges(const Shape& edges, const Shape& shape);

// The number of cells along each dimension. The last ones may stick out.
Shape cell_grid(const Shape& shape, const Shape& edges);

std::uint64_t bytes_of_cell(Dtype dtype);  // as it is stored

// Sketches a row-major tensor. Returns the cells as they are stored, row-major in the grid.
std::string sketch_of(const std::byte* data, Dtype dtype, const Shape& shape, const Shape& edges);

// Sketches one cell, whose elements lie in `elements`, row-major in the whole cell, 0 where it has none. There are
// `count` of them, a multiple of kChunkElements or less than one chunk.
Cell sketch_cell(const std::byte* elements, Dtype dtype, std::int64_t count);

// Tells whether `sketch_cell` may have made it of `count` elements: sums that are NaN, or a negative norm or count, it
// does not make.
bool is_possible(const Cell& cell, std::int64_t count);

// A cell as it was stored: at `stored`, of a tensor of this dtype.
Cell read_cell(const std::byte* stored, Dtype dtype);

}  // namespace ttrace
