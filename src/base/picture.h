// Pictures: what a page draws of one tensor. Who holds which part of it, and where its error lies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "base/trace.h"

namespace ttrace {

// A box of a logical tensor with the ranks that hold it: one list a replica, each with the ranks whose terms add up to
// the values, in order of the term. Most lists have one rank.
struct ShardBox {
  Box box;
  std::vector<std::vector<std::int32_t>> replicas;
};

struct ShardPicture {
  std::int32_t ranks = 0;       // that hold a part
  std::vector<ShardBox> boxes;  // in order of their start
  std::size_t left_out = 0;     // further boxes, where there are too many to draw
};

// The error, seen along two dimensions of the tensor: each cell has the largest |reference - candidate| of the elements
// in it, over all other dimensions. Cell (r, c) of m x n has the indices [r * extent / m, (r + 1) * extent / m) of
// `row_dim`, and so on. A dimension is -1 where the tensor has none.
struct ErrorMap {
  int row_dim = -1, column_dim = -1;
  std::int64_t rows = 1, columns = 1;
  std::vector<double> largest;  // row-major; infinity where elements are finite on one side only, or differently so
};

struct PicturedElement {
  Shape index;  // in the logical tensor
  std::int32_t rank = 0;
  double reference = 0, candidate = 0;
};

struct Picture {
  TensorId id;
  Shape reference_shape, candidate_shape;
  Dtype reference_dtype = Dtype::kFloat32, candidate_dtype = Dtype::kFloat32;
  ShardPicture reference, candidate;
  std::string without_values;  // why only the shards are drawn; if empty, all that follows is there
  ErrorMap map;
  std::map<int, std::int64_t> octaves;     // by n, how many elements differ by [2^n, 2^(n+1))
  std::int64_t equal = 0, not_finite = 0;  // the other elements
  std::vector<PicturedElement> worst;      // at most ten, the largest difference first
};

}  // namespace ttrace
