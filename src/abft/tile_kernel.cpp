#include "abft/tile_kernel.h"

namespace ttrace::abft {
namespace {

TileKernel kernel_for(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return float64_kernel();
    case Dtype::kFloat32:
      return float32_kernel();
    case Dtype::kBFloat16:
      return bfloat16_kernel();
    default:
      return float16_kernel();
  }
}

}  // namespace

bool has_kernel(Dtype dtype) {
  return dtype == Dtype::kFloat64 || dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
}

void read_tile(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
               PartialSums& columns, ColumnProducts& left_times) {
  kernel_for(tile.dtype).read(tile, reading, first_row, rows, columns, left_times);
}

void multiply_rows(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  kernel_for(tile.dtype).multiply(tile, right, in_fp32, rows);
}

}  // namespace ttrace::abft
