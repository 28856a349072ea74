// The kernels for elements in bf16.
#include "abft/tile_kernel.h"
#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "abft/tile_kernel_bfloat16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "abft/tile_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttrace::abft {
namespace HWY_NAMESPACE {

void ReadBFloat16(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
                  PartialSums& columns, ColumnProducts& left_times) {
  read_tile_of<Widened<narrow::BFloat16>, Short<narrow::BFloat16>>(tile, reading, first_row, rows, columns, left_times);
}

void MultiplyBFloat16(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  multiply_rows_of<Widened<narrow::BFloat16>, Short<narrow::BFloat16>>(tile, right, in_fp32, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace::abft {

HWY_EXPORT(ReadBFloat16);
HWY_EXPORT(MultiplyBFloat16);

TileKernel bfloat16_kernel() { return {&HWY_DYNAMIC_DISPATCH(ReadBFloat16), &HWY_DYNAMIC_DISPATCH(MultiplyBFloat16)}; }

}  // namespace ttrace::abft
#endif
