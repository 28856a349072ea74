// The kernels for elements in fp32.
#include "abft/tile_kernel.h"
#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "abft/tile_kernel_float32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "abft/tile_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttrace::abft {
namespace HWY_NAMESPACE {

void ReadFloat32(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
                 PartialSums& columns, ColumnProducts& left_times) {
  read_tile_of<Widened<narrow::Float32>>(tile, reading, first_row, rows, columns, left_times);
}

void MultiplyFloat32(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  multiply_rows_of<Widened<narrow::Float32>>(tile, right, in_fp32, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace::abft {

HWY_EXPORT(ReadFloat32);
HWY_EXPORT(MultiplyFloat32);

TileKernel float32_kernel() { return {&HWY_DYNAMIC_DISPATCH(ReadFloat32), &HWY_DYNAMIC_DISPATCH(MultiplyFloat32)}; }

}  // namespace ttrace::abft
#endif
