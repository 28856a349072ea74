// The inner loops of the checksums: sums along the rows and along the columns of a tile that fits in cache. SIMD
// through Highway: the best instruction set of the machine is picked at run time, and all of them give the same bits.
//
// Every element is widened to fp64 as it is loaded, exactly; sums are in fp64. A product of fp64 may be off by as
// little as these sums themselves: of fp64 elements the plain sum is compensated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ttrace/abft/checksum.h"
#include "ttrace/numeric/dtype.h"

namespace ttrace::abft {

// A block of a matrix. Columns are contiguous; the dtype is fp64, fp32, fp16 or bf16. `row_stride` is in elements.
struct Tile {
  const std::byte* data;
  Dtype dtype;
  std::int64_t row_stride, rows, cols;
};
bool has_kernel(Dtype dtype);

// The sums of one row of a tile; the weights are 1, 2, 3, ...
struct RowSums {
  double sum = 0, lost = 0;  // `lost`: what rounding took from `sum`
  double weighted = 0;
  double smallest = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  double absolute = 0, square = 0;
};
struct Pair {
  double plain = 0, weighted = 0;
};

// The sums of columns, carried on from a tile to the one below it. `running` is the sum of the running sums.
struct ColumnSums {
  std::vector<double> sum, lost, running, smallest, largest, absolute, square;
};

// Products of columns with vectors, carried on in the same way.
struct ColumnProducts {
  std::vector<double> plain, lost, weighted;
};

// Overwrites those members of `rows` (one for each row of the tile) that `depth` asks for.
void sum_rows(const Tile& tile, Depth depth, RowSums* rows);
// Adds the tile to `columns`, whose number `first` is the tile's first column.
void sum_columns(const Tile& tile, Depth depth, ColumnSums& columns, std::int64_t first);

// Overwrites `rows` with the two inner products of each row and the vectors `plain` and `weighted`, of `tile.cols`
// numbers.
void multiply_rows(const Tile& tile, const double* plain, const double* weighted, Pair* rows);
// Adds to `columns`, from number `first` on, the two inner products of each column and vectors of `tile.rows` numbers.
void multiply_columns(const Tile& tile, const double* plain, const double* weighted, ColumnProducts& columns,
                      std::int64_t first);

}  // namespace ttrace::abft
