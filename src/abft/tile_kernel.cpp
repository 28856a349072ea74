// The same bits on every machine: element i of a row goes to lane i % kLanes however many vectors make up the lanes,
// the sums of a column take its elements in order, and no multiply is fused with an add.
//
// Sums weighted by position cost one addition, not a multiplication: W, the sum of the running sums S of n elements,
// has counted the first element n times and the last once, so (n + 1) S - W weights them by 1 to n.
//
// Nothing is masked: NaN and Inf make the plain sum of their line not finite, and the caller checks that.

#include "abft/tile_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "abft/tile_kernel.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/narrow_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttrace::abft {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace narrow = ttrace::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, 8>;
using Vector = hn::Vec<Doubles>;
constexpr std::size_t kWidth = hn::MaxLanes(Doubles());

template <class Narrow>
struct Widened {
  using Stored = Narrow::Stored;
  static constexpr bool kCompensated = false;  // fp64 has 29 bits more than any sum of these needs
  static HWY_INLINE Vector load(const Stored* data) {
    return hn::PromoteTo(Doubles(), Narrow::load(hn::Rebind<float, Doubles>(), data));
  }
};

struct Float64 {
  using Stored = double;
  static constexpr bool kCompensated = true;
  static HWY_INLINE Vector load(const Stored* data) { return hn::LoadU(Doubles(), data); }
};

template <class Type>
HWY_INLINE const Type::Stored* row_of(const Tile& tile, std::int64_t row) {
  return reinterpret_cast<const Type::Stored*>(tile.data) + row * tile.row_stride;
}

// Loads `kVectors` vectors from `data`, which has only `count` elements; the others become zero.
template <class Type, std::size_t kVectors>
HWY_INLINE void load_part(const typename Type::Stored* data, std::size_t count, Vector* x) {
  typename Type::Stored buffer[kVectors * kWidth] = {};
  std::memcpy(buffer, data, count * sizeof buffer[0]);
  for (std::size_t v = 0; v < kVectors; ++v) x[v] = Type::load(buffer + v * kWidth);
}

// Adds `x` to `sum`. If the type needs it, `lost` collects the rounding error (Knuth's two-sum).
template <class Type>
HWY_INLINE void add_to(Vector& sum, Vector& lost, Vector x) {
  const Vector next = hn::Add(sum, x);
  if constexpr (Type::kCompensated) {
    const Vector added = hn::Sub(next, sum);
    lost = hn::Add(lost, hn::Add(hn::Sub(sum, hn::Sub(next, added)), hn::Sub(x, added)));
  }
  sum = next;
}

template <class Type, Depth kDepth, std::size_t kVectors>
struct LaneSums {
  static constexpr bool kExtrema = kDepth >= Depth::kExtrema, kNorms = kDepth >= Depth::kNorms;
  Vector sum[kVectors], lost[kVectors], running[kVectors];
  Vector smallest[kVectors], largest[kVectors], absolute[kVectors], square[kVectors];

  HWY_INLINE LaneSums() {
    for (std::size_t v = 0; v < kVectors; ++v) {
      sum[v] = lost[v] = running[v] = absolute[v] = square[v] = hn::Zero(Doubles());
      smallest[v] = hn::Set(Doubles(), std::numeric_limits<double>::infinity());
      largest[v] = hn::Neg(smallest[v]);
    }
  }

  HWY_INLINE void add(const Vector* x) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      add_to<Type>(sum[v], lost[v], x[v]);
      running[v] = hn::Add(running[v], sum[v]);
      if constexpr (kNorms) {
        absolute[v] = hn::Add(absolute[v], hn::Abs(x[v]));
        square[v] = hn::Add(square[v], hn::Mul(x[v], x[v]));
      }
    }
  }

  // Separate from `add`, because zeros that fill up a vector must not count: only the first `count` elements do.
  HWY_INLINE void add_extrema(const Vector* x, std::size_t count) {
    if constexpr (!kExtrema) return;
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t here = count > v * kWidth ? std::min(count - v * kWidth, kWidth) : 0;
      const auto mask = hn::FirstN(Doubles(), here);
      smallest[v] = hn::IfThenElse(mask, hn::Min(smallest[v], x[v]), smallest[v]);
      largest[v] = hn::IfThenElse(mask, hn::Max(largest[v], x[v]), largest[v]);
    }
  }
  // Written out, because a loop over the members' addresses would keep them in memory instead of registers.
  template <class Strip>
  HWY_INLINE void load(Strip strip, const ColumnSums& columns, std::size_t at) {
    strip.template load<Float64>(columns.sum.data() + at, sum);
    strip.template load<Float64>(columns.running.data() + at, running);
    if constexpr (Type::kCompensated) strip.template load<Float64>(columns.lost.data() + at, lost);
    if constexpr (kExtrema) strip.template load<Float64>(columns.smallest.data() + at, smallest);
    if constexpr (kExtrema) strip.template load<Float64>(columns.largest.data() + at, largest);
    if constexpr (kNorms) strip.template load<Float64>(columns.absolute.data() + at, absolute);
    if constexpr (kNorms) strip.template load<Float64>(columns.square.data() + at, square);
  }
  template <class Strip>
  HWY_INLINE void store(Strip strip, ColumnSums& columns, std::size_t at) const {
    strip.store(sum, columns.sum.data() + at);
    strip.store(running, columns.running.data() + at);
    if constexpr (Type::kCompensated) strip.store(lost, columns.lost.data() + at);
    if constexpr (kExtrema) strip.store(smallest, columns.smallest.data() + at);
    if constexpr (kExtrema) strip.store(largest, columns.largest.data() + at);
    if constexpr (kNorms) strip.store(absolute, columns.absolute.data() + at);
    if constexpr (kNorms) strip.store(square, columns.square.data() + at);
  }

  HWY_INLINE void add_extrema(const Vector* x) {
    if constexpr (!kExtrema) return;
    for (std::size_t v = 0; v < kVectors; ++v) {
      smallest[v] = hn::Min(smallest[v], x[v]);
      largest[v] = hn::Max(largest[v], x[v]);
    }
  }
};

template <std::size_t kVectors>
using Stage = std::array<double, kVectors * kWidth>;

template <std::size_t kVectors>
HWY_INLINE Stage<kVectors> stored(const Vector* x) {
  Stage<kVectors> stage;
  for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(x[v], Doubles(), stage.data() + v * kWidth);
  return stage;
}

constexpr std::size_t kLanes = 16;
constexpr std::size_t kRowVectors = kLanes / kWidth;

// Sums the lanes: adds the upper half to the lower until one is left, the same order on every machine.
HWY_INLINE double total(const Vector* lanes) {
  Stage<kRowVectors> stage = stored<kRowVectors>(lanes);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) stage[i] += stage[i + half];
  }
  return stage[0];
}

// Prefetches kLanes elements of the next row, which hardware prefetchers do not foresee.
template <class Stored>
HWY_INLINE void prefetch_next_row(const Tile& tile, const Stored* data) {
  hwy::Prefetch(data + tile.row_stride);
  if constexpr (sizeof(Stored) > 4) hwy::Prefetch(data + tile.row_stride + kLanes / 2);
}

template <class Type, Depth kDepth>
HWY_NOINLINE void sum_rows_as(const Tile& tile, RowSums* rows) {
  using Sums = LaneSums<Type, kDepth, kRowVectors>;
  const auto cols = static_cast<std::size_t>(tile.cols);
  const std::size_t whole_steps = (cols + kLanes - 1) / kLanes;
  const auto steps = static_cast<double>(whole_steps);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const auto* const data = row_of<Type>(tile, row);
    Sums sums;
    Vector x[kRowVectors];
    std::size_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) {
      prefetch_next_row(tile, data + i);
      for (std::size_t v = 0; v < kRowVectors; ++v) x[v] = Type::load(data + i + v * kWidth);
      sums.add(x);
      sums.add_extrema(x);
    }
    if (i < cols) {
      load_part<Type, kRowVectors>(data + i, cols - i, x);
      sums.add(x);
      sums.add_extrema(x, cols - i);
    }
    RowSums& result = rows[row];
    result.sum = total(sums.sum);
    if constexpr (Type::kCompensated) result.lost = total(sums.lost);
    // Lane l holds elements l, l + kLanes, ...: element l + j kLanes has weight j kLanes + l + 1.
    const Stage<kRowVectors> sum = stored<kRowVectors>(sums.sum), running = stored<kRowVectors>(sums.running);
    result.weighted = 0;
    for (std::size_t l = 0; l < kLanes; ++l) {
      result.weighted +=
          static_cast<double>(kLanes) * (steps * sum[l] - running[l]) + static_cast<double>(l + 1) * sum[l];
    }
    if constexpr (Sums::kExtrema) {
      const Stage<kRowVectors> low = stored<kRowVectors>(sums.smallest), high = stored<kRowVectors>(sums.largest);
      result.smallest = *std::min_element(low.begin(), low.end());
      result.largest = *std::max_element(high.begin(), high.end());
    }
    if constexpr (Sums::kNorms) {
      result.absolute = total(sums.absolute);
      result.square = total(sums.square);
    }
  }
}

// A strip of adjacent columns: `kCount` full vectors; or, where it is not whole, one vector that is filled from a copy.
template <std::size_t kCount, bool kWhole>
struct Strip {
  static constexpr std::size_t kVectors = kCount;
  std::size_t cols;

  template <class Type>
  HWY_INLINE void load(const Type::Stored* data, Vector* x) const {
    if constexpr (!kWhole) return load_part<Type, kVectors>(data, cols, x);
    for (std::size_t v = 0; v < kVectors; ++v) x[v] = Type::load(data + v * kWidth);
  }
  HWY_INLINE void store(const Vector* x, double* data) const {
    if constexpr (kWhole) {
      for (std::size_t v = 0; v < kVectors; ++v) hn::StoreU(x[v], Doubles(), data + v * kWidth);
    } else {
      std::memcpy(data, stored<kVectors>(x).data(), cols * sizeof(double));
    }
  }
};

// Calls `visit(strip, col)` for all columns of a tile.
template <class Visit>
HWY_INLINE void for_each_strip(std::int64_t tile_cols, Visit visit) {
  constexpr std::size_t kVectors = 4, kStrip = kVectors * kWidth;
  const auto cols = static_cast<std::size_t>(tile_cols);
  std::size_t col = 0;
  for (; col + kStrip <= cols; col += kStrip) visit(Strip<kVectors, true>{kStrip}, col);
  for (; col + kWidth <= cols; col += kWidth) visit(Strip<1, true>{kWidth}, col);
  if (col < cols) visit(Strip<1, false>{cols - col}, col);
}

template <class Type, Depth kDepth, class Strip>
HWY_INLINE void sum_strip(const Tile& tile, Strip strip, std::size_t col, ColumnSums& columns, std::size_t at) {
  LaneSums<Type, kDepth, Strip::kVectors> sums;
  sums.load(strip, columns, at);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    Vector x[Strip::kVectors];
    strip.template load<Type>(row_of<Type>(tile, row) + col, x);
    sums.add(x);
    sums.add_extrema(x);
  }
  sums.store(strip, columns, at);
}

template <class Type, Depth kDepth>
HWY_NOINLINE void sum_columns_as(const Tile& tile, ColumnSums& columns, std::size_t first) {
  for_each_strip(tile.cols, [&](auto strip, std::size_t col)
                                HWY_ATTR { sum_strip<Type, kDepth>(tile, strip, col, columns, first + col); });
}

template <class Type>
HWY_NOINLINE void multiply_rows_as(const Tile& tile, const double* plain, const double* weighted, Pair* rows) {
  const auto cols = static_cast<std::size_t>(tile.cols);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const auto* const data = row_of<Type>(tile, row);
    Vector first[kRowVectors], lost[kRowVectors], second[kRowVectors], x[kRowVectors], p[kRowVectors], w[kRowVectors];
    for (std::size_t v = 0; v < kRowVectors; ++v) first[v] = lost[v] = second[v] = hn::Zero(Doubles());
    const auto add = [&]() HWY_ATTR {
      for (std::size_t v = 0; v < kRowVectors; ++v) {
        add_to<Type>(first[v], lost[v], hn::Mul(x[v], p[v]));
        second[v] = hn::Add(second[v], hn::Mul(x[v], w[v]));
      }
    };
    std::size_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) {
      prefetch_next_row(tile, data + i);
      for (std::size_t v = 0; v < kRowVectors; ++v) {
        x[v] = Type::load(data + i + v * kWidth);
        p[v] = hn::LoadU(Doubles(), plain + i + v * kWidth);
        w[v] = hn::LoadU(Doubles(), weighted + i + v * kWidth);
      }
      add();
    }
    if (i < cols) {
      load_part<Type, kRowVectors>(data + i, cols - i, x);
      load_part<Float64, kRowVectors>(plain + i, cols - i, p);
      load_part<Float64, kRowVectors>(weighted + i, cols - i, w);
      add();
    }
    rows[row] = {total(first) + total(lost), total(second)};
  }
}

template <class Type, class Strip>
HWY_INLINE void multiply_strip(const Tile& tile, const double* plain, const double* weighted, Strip strip,
                               std::size_t col, ColumnProducts& columns, std::size_t at) {
  constexpr std::size_t kVectors = Strip::kVectors;
  Vector first[kVectors], lost[kVectors], second[kVectors], x[kVectors];
  strip.template load<Float64>(columns.plain.data() + at, first);
  strip.template load<Float64>(columns.lost.data() + at, lost);
  strip.template load<Float64>(columns.weighted.data() + at, second);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const Vector p = hn::Set(Doubles(), plain[row]), w = hn::Set(Doubles(), weighted[row]);
    strip.template load<Type>(row_of<Type>(tile, row) + col, x);
    for (std::size_t v = 0; v < kVectors; ++v) {
      add_to<Type>(first[v], lost[v], hn::Mul(x[v], p));
      second[v] = hn::Add(second[v], hn::Mul(x[v], w));
    }
  }
  strip.store(first, columns.plain.data() + at);
  strip.store(lost, columns.lost.data() + at);
  strip.store(second, columns.weighted.data() + at);
}

template <class Type>
HWY_NOINLINE void multiply_columns_as(const Tile& tile, const double* plain, const double* weighted,
                                      ColumnProducts& columns, std::size_t first) {
  for_each_strip(tile.cols, [&](auto strip, std::size_t col) HWY_ATTR {
    multiply_strip<Type>(tile, plain, weighted, strip, col, columns, first + col);
  });
}

// Calls `function(type)` with the type that holds elements of `dtype`.
template <class Function>
HWY_INLINE void with_type(Dtype dtype, Function function) {
  switch (dtype) {
    case Dtype::kFloat64:
      return function(Float64());
    case Dtype::kFloat32:
      return function(Widened<narrow::Float32>());
    case Dtype::kBFloat16:
      return function(Widened<narrow::BFloat16>());
    default:
      return function(Widened<narrow::Float16>());
  }
}

void SumRows(const Tile& tile, Depth depth, RowSums* rows) {
  with_type(tile.dtype, [&](auto type) {
    using Type = decltype(type);
    if (depth == Depth::kSums) return sum_rows_as<Type, Depth::kSums>(tile, rows);
    if (depth == Depth::kExtrema) return sum_rows_as<Type, Depth::kExtrema>(tile, rows);
    return sum_rows_as<Type, Depth::kNorms>(tile, rows);
  });
}

void SumColumns(const Tile& tile, Depth depth, ColumnSums& columns, std::size_t first) {
  with_type(tile.dtype, [&](auto type) {
    using Type = decltype(type);
    if (depth == Depth::kSums) return sum_columns_as<Type, Depth::kSums>(tile, columns, first);
    if (depth == Depth::kExtrema) return sum_columns_as<Type, Depth::kExtrema>(tile, columns, first);
    return sum_columns_as<Type, Depth::kNorms>(tile, columns, first);
  });
}

void MultiplyRows(const Tile& tile, const double* plain, const double* weighted, Pair* rows) {
  with_type(tile.dtype, [&](auto type) { multiply_rows_as<decltype(type)>(tile, plain, weighted, rows); });
}

void MultiplyColumns(const Tile& tile, const double* plain, const double* weighted, ColumnProducts& columns,
                     std::size_t first) {
  with_type(tile.dtype, [&](auto type) { multiply_columns_as<decltype(type)>(tile, plain, weighted, columns, first); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace::abft {

HWY_EXPORT(SumRows);
HWY_EXPORT(SumColumns);
HWY_EXPORT(MultiplyRows);
HWY_EXPORT(MultiplyColumns);

bool has_kernel(Dtype dtype) {
  return dtype == Dtype::kFloat64 || dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
}

void sum_rows(const Tile& tile, Depth depth, RowSums* rows) { HWY_DYNAMIC_DISPATCH(SumRows)(tile, depth, rows); }

void sum_columns(const Tile& tile, Depth depth, ColumnSums& columns, std::int64_t first) {
  HWY_DYNAMIC_DISPATCH(SumColumns)(tile, depth, columns, static_cast<std::size_t>(first));
}

void multiply_rows(const Tile& tile, const double* plain, const double* weighted, Pair* rows) {
  HWY_DYNAMIC_DISPATCH(MultiplyRows)(tile, plain, weighted, rows);
}

void multiply_columns(const Tile& tile, const double* plain, const double* weighted, ColumnProducts& columns,
                      std::int64_t first) {
  HWY_DYNAMIC_DISPATCH(MultiplyColumns)(tile, plain, weighted, columns, static_cast<std::size_t>(first));
}

}  // namespace ttrace::abft
#endif
