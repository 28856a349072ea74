// The inner loops of the checksums: sums along the rows and along the columns of a tile. SIMD through Highway: the best
// instruction set of the machine is picked at run time, and all of them give the same bits.
//
// Every element is widened to fp64 as it is loaded, exactly; sums are in fp64. A product of fp64 may be off by as
// little as these sums themselves: of fp64 elements the plain sum is compensated.
//
// Elements of 16 bits can be summed in fp32 within a tile, and in fp64 from tile to tile, where the caller says that
// this will do (`in_fp32`); not for weighted sums and norms. Then each of a row's 16 lanes adds up 64 elements at most,
// a column 32; a product rounds its factor and itself, too. So every sum is off by at most (63 + 2) 2^-24, to first
// order, of the sum of the magnitudes that it adds: less than 2^-17. A sum beyond fp32 is infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "abft/checksum.h"
#include "numeric/dtype.h"

namespace ttrace::abft {

constexpr std::int64_t kTileRows = 32, kTileCols = 1024;
constexpr std::int64_t kStepCols = 16;  // the sums of columns are padded to a multiple of it
// Returns how many rows a tile best has: more of narrow elements, whose column sums are widened at its end.
inline std::int64_t tile_rows(Dtype dtype) { return size_of(dtype) == 8 ? 8 : kTileRows; }

// A block of a matrix, of at most kTileRows rows and kTileCols columns. Columns are contiguous; the dtype is fp64,
// fp32, fp16 or bf16. `row_stride` is in elements.
struct Tile {
  const std::byte* data;
  Dtype dtype;
  std::int64_t row_stride, rows, cols;
};
bool has_kernel(Dtype dtype);

// Two numbers for each row, or for each column, of a tile. `weighted` is null where weighted sums are not asked for.
struct Factors {
  const double* plain = nullptr;
  const double* weighted = nullptr;
};

// Sums of lines, one of each for each row or for each column; those that are not asked for are empty. The weights of
// `weighted` are 1, 2, 3, ...
struct PartialSums {
  std::vector<double> sum, lost;  // `lost`: what rounding took from `sum`
  std::vector<double> running;    // the sum of the running sums; of columns in place of `weighted`
  std::vector<double> weighted, smallest, largest, absolute, square;
};
struct Pair {
  double plain = 0, weighted = 0;
};

// Products of columns with vectors, carried on in the same way.
struct ColumnProducts {
  std::vector<double> plain, lost, weighted;
};

// Says what is computed of a tile in one pass over it.
struct TileReading {
  Depth depth = Depth::kNone;
  bool weighted = false;
  bool in_fp32 = false;  // of 16-bit elements; without effect on others
  Factors left;          // one for each row; `plain` is null where no products with columns are asked for
};
// Overwrites the sums of `rows` from number `first_row` on, and adds the tile to `columns` and to `left_times`, whose
// first column is the tile's.
void read_tile(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
               PartialSums& columns, ColumnProducts& left_times);

// Overwrites `rows` with the inner products of each row and `right`, one for each column.
void multiply_rows(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows);

// Does both for elements of one dtype. Each dtype's kernel is a file of its own, so that compilers work side by side.
struct TileKernel {
  decltype(read_tile)* read;
  decltype(multiply_rows)* multiply;
};
TileKernel float64_kernel();
TileKernel float32_kernel();
TileKernel float16_kernel();
TileKernel bfloat16_kernel();

}  // namespace ttrace::abft
