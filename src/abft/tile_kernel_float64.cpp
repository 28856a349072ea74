// The kernels for elements in fp64.
#include "abft/tile_kernel.h"
#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "abft/tile_kernel_float64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "abft/tile_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttrace::abft {
namespace HWY_NAMESPACE {

void ReadFloat64(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
                 PartialSums& columns, ColumnProducts& left_times) {
  read_tile_of<Float64>(tile, reading, first_row, rows, columns, left_times);
}

void MultiplyFloat64(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  multiply_rows_of<Float64>(tile, right, in_fp32, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace::abft {

HWY_EXPORT(ReadFloat64);
HWY_EXPORT(MultiplyFloat64);

TileKernel float64_kernel() { return {&HWY_DYNAMIC_DISPATCH(ReadFloat64), &HWY_DYNAMIC_DISPATCH(MultiplyFloat64)}; }

}  // namespace ttrace::abft
#endif
