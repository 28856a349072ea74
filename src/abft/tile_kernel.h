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

// Columns are contiguous, the dtype is fp64, fp32, fp16 or bf16. `row_stride` is in elements.
struct Tile {
  const std::byte* data;
  Dtype dtype;
  std::int64_t row_stride, rows, cols;
};
bool has_kernel(Dtype dtype);

// Of one row of a tile; the weights are 1, 2, 3, ...
struct RowSums {
  double sum = 0, lost = 0;  // `lost`: what rounding took from `sum`
  double weighted = 0;
  double smallest = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  double absolute = 0, square = 0;
};
struct Pair {
  double plain = 0, weighted = 0;
};

// Of columns, which go on from tile to tile below each other. `running` is the sum of the running sums.
struct ColumnSums {
  std::vector<double> sum, lost, running, smallest, largest, absolute, square;
};

// Products of columns with numbers, which go on in the same way.
struct ColumnProducts {
  std::vector<double> plain, lost, weighted;
};

// Overwrite what `depth` has of `rows`, one a row.
void sum_rows(const Tile& tile, Depth depth, RowSums* rows);
// Add to `columns` from number `first` on.
void sum_columns(const Tile& tile, Depth depth, ColumnSums& columns, std::int64_t first);

// Two inner products of each row with vectors of `tile.cols` numbers: overwrites `rows`.
void multiply_rows(const Tile& tile, const double* plain, const double* weighted, Pair* rows);
// The same of each column with `tile.rows` numbers: adds to `columns` from number `first` on.
void multiply_columns(const Tile& tile, const double* plain, const double* weighted, ColumnProducts& columns,
                      std::int64_t first);

}  // namespace ttrace::abft
