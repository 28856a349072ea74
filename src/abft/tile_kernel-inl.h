// Some rows at a time are read from left to right: their sums stay in registers, those of the columns in the first
// cache.
//
// The same bits on every machine: element i of a row goes to lane i % kLanes however many vectors make up the lanes,
// the sums of a column take its elements in order (in fp32 those of one tile, whose sum is then added to those of the
// tiles above), and no multiply is fused with an add, but by one, which changes no bit.
//
// Sums weighted by position cost one addition, not a multiplication: W, the sum of the running sums S of n elements,
// has counted the first element n times and the last once, so (n + 1) S - W weights them by 1 to n.
//
// Nothing is masked: NaN and Inf make the plain sum of their line not finite, and the caller checks that.

//
// Included by one file for each dtype, which is compiled alone: compilers take minutes over all of them.

#if defined(TTRACE_ABFT_TILE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_ABFT_TILE_KERNEL_INL_H_
#undef TTRACE_ABFT_TILE_KERNEL_INL_H_
#else
#define TTRACE_ABFT_TILE_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "abft/elements-inl.h"
#include "abft/tile_kernel.h"

// Compilers pass in memory, instead of registers, what they do not inline by themselves.
#ifndef TTRACE_INLINE_LAMBDA
#define TTRACE_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace ttrace::abft {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace narrow = ttrace::HWY_NAMESPACE;

template <class Type>
HWY_INLINE const typename Type::Stored* row_of(const Tile& tile, std::int64_t row) {
  return reinterpret_cast<const typename Type::Stored*>(tile.data) + row * tile.row_stride;
}

// Adds in the units that multiply, to the same bits: there are processors on which only others add and compare, and are
// short of time while these idle.
template <class Vector>
HWY_INLINE Vector add_as_product(Vector a, Vector b) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, hn::Set(hn::DFromV<Vector>(), 1), b);
#else
  return hn::Add(a, b);
#endif
}
template <class Vector>
HWY_INLINE Vector subtract_as_product(Vector a, Vector b) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, hn::Set(hn::DFromV<Vector>(), 1), b);
#else
  return hn::Sub(a, b);
#endif
}

// Adds `x` to `sum`; `kCompared`: while elements are compared, too. If the type needs it, `lost` collects the rounding
// error (Knuth's two-sum).
template <class Type, bool kCompared, class Vector = hn::Vec<typename Type::Summed>>
HWY_INLINE void add_to(Vector& sum, Vector& lost, Vector x) {
  if constexpr (Type::kCompensated) {
    const Vector next = hn::Add(sum, x), added = subtract_as_product(next, sum);
    const Vector before = kCompared ? subtract_as_product(next, added) : hn::Sub(next, added);
    const Vector error = hn::Add(subtract_as_product(sum, before), hn::Sub(x, added));
    lost = add_as_product(error, lost);
    sum = next;
  } else {
    sum = kCompared ? add_as_product(x, sum) : hn::Add(sum, x);
  }
}

// Says where the sums of a tile's columns, or a row's lanes, lie in memory.
template <class Type>
struct Places {
  using Number = hn::TFromD<typename Type::Summed>;
  using Extremum = typename Type::Extremum;
  Number *sum = nullptr, *lost = nullptr, *running = nullptr;
  Extremum *smallest = nullptr, *largest = nullptr;
  Number *absolute = nullptr, *square = nullptr;
};

// The sums of kLanes lines, in registers: of columns, or of the lanes of a row.
template <class Type, Depth kDepth, bool kWeighted>
struct Sums {
  using Summed = typename Type::Summed;
  using Compared = typename Type::Compared;
  using Vector = hn::Vec<Summed>;
  static constexpr std::size_t kCount = kVectors<Type>, kCompared = Step<Type>::kCompared;
  static constexpr bool kPlain = kDepth >= Depth::kSums, kRunning = kPlain && kWeighted;
  static constexpr bool kLost = kPlain && Type::kCompensated;
  static constexpr bool kExtrema = kDepth >= Depth::kExtrema, kNorms = kDepth >= Depth::kNorms;
  // The number of registers that they take, with the one that turning a step to integers takes for each row.
  static constexpr std::size_t kRegisters =
      (std::size_t{kPlain} + kLost + kRunning + 2 * std::size_t{kNorms}) * kCount +
      std::size_t{kExtrema} * (2 * kCompared + std::is_integral_v<typename Type::Extremum>);
  Vector sum[kCount], lost[kCount], running[kCount], absolute[kCount], square[kCount];
  hn::Vec<Compared> smallest[kCompared], largest[kCompared];

  HWY_INLINE void clear() {
    for (std::size_t v = 0; v < kCount; ++v) {
      if constexpr (kPlain) sum[v] = hn::Zero(Summed());
      if constexpr (kLost) lost[v] = hn::Zero(Summed());
      if constexpr (kRunning) running[v] = hn::Zero(Summed());
      if constexpr (kNorms) absolute[v] = hn::Zero(Summed());
      if constexpr (kNorms) square[v] = hn::Zero(Summed());
    }
    for (std::size_t i = 0; i < kCompared; ++i) {
      if constexpr (kExtrema) smallest[i] = hn::Set(Compared(), Type::kGreatest);
      if constexpr (kExtrema) largest[i] = hn::Set(Compared(), Type::kLeast);
    }
  }

  HWY_INLINE void add(const Step<Type>& x) {
    for (std::size_t v = 0; v < kCount; ++v) {
      const Vector value = x.wide[v];
      if constexpr (kPlain) add_to<Type, kExtrema>(sum[v], lost[v], value);
      if constexpr (kRunning) running[v] = hn::Add(running[v], sum[v]);
      if constexpr (kNorms) absolute[v] = hn::Add(absolute[v], hn::Abs(value));
      if constexpr (kNorms) square[v] = hn::Add(square[v], hn::Mul(value, value));
    }
    if constexpr (kExtrema) {
      for (std::size_t i = 0; i < kCompared; ++i) {
        smallest[i] = hn::Min(smallest[i], x.compared[i]);
        largest[i] = hn::Max(largest[i], x.compared[i]);
      }
    }
  }

  // Written out, because a loop over the members' addresses would keep them in memory instead of registers.
  HWY_INLINE void load(const Places<Type>& from, std::size_t at) {
    for (std::size_t v = 0; v < kCount; ++v, at += kWidth<Summed>) {
      if constexpr (kPlain) sum[v] = hn::LoadU(Summed(), from.sum + at);
      if constexpr (kLost) lost[v] = hn::LoadU(Summed(), from.lost + at);
      if constexpr (kRunning) running[v] = hn::LoadU(Summed(), from.running + at);
      if constexpr (kNorms) absolute[v] = hn::LoadU(Summed(), from.absolute + at);
      if constexpr (kNorms) square[v] = hn::LoadU(Summed(), from.square + at);
    }
    at -= kLanes;
    for (std::size_t i = 0; i < kCompared; ++i, at += kWidth<Compared>) {
      if constexpr (kExtrema) smallest[i] = hn::LoadU(Compared(), from.smallest + at);
      if constexpr (kExtrema) largest[i] = hn::LoadU(Compared(), from.largest + at);
    }
  }
  HWY_INLINE void store(const Places<Type>& to, std::size_t at) const {
    for (std::size_t v = 0; v < kCount; ++v, at += kWidth<Summed>) {
      if constexpr (kPlain) hn::StoreU(sum[v], Summed(), to.sum + at);
      if constexpr (kLost) hn::StoreU(lost[v], Summed(), to.lost + at);
      if constexpr (kRunning) hn::StoreU(running[v], Summed(), to.running + at);
      if constexpr (kNorms) hn::StoreU(absolute[v], Summed(), to.absolute + at);
      if constexpr (kNorms) hn::StoreU(square[v], Summed(), to.square + at);
    }
    at -= kLanes;
    for (std::size_t i = 0; i < kCompared; ++i, at += kWidth<Compared>) {
      if constexpr (kExtrema) hn::StoreU(smallest[i], Compared(), to.smallest + at);
      if constexpr (kExtrema) hn::StoreU(largest[i], Compared(), to.largest + at);
    }
  }
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE double total_of_lanes(DoubleTag, Doubles x) { return hn::GetLane(x); }
#else
template <class Tag>
HWY_INLINE double total_of_lanes(Tag, hn::Vec<Tag> x) {
  if constexpr (hn::MaxLanes(Tag()) == 1) {
    return hn::GetLane(x);
  } else {
    const hn::Half<Tag> half;
    return total_of_lanes(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
  }
}
#endif

// Sums kLanes lanes in the same order on every machine, in fp64: the upper half to the lower, until one is left.
template <class Vector>
HWY_INLINE double total(const Vector* lanes) {
  constexpr std::size_t kAll = kLanes / kWidth<DoubleTag>, kHere = kLanes / kWidth<hn::DFromV<Vector>>;
  Doubles sums[kAll];
  for (std::size_t v = 0; v < kHere; ++v) widen(lanes[v], sums + v * kAll / kHere);
  for (std::size_t left = kAll / 2; left > 0; left /= 2) {
    for (std::size_t v = 0; v < left; ++v) sums[v] = hn::Add(sums[v], sums[v + left]);
  }
  return total_of_lanes(DoubleTag(), sums[0]);
}

// Returns the number of what was compared.
template <class Type>
HWY_INLINE double number(typename Type::Extremum compared) {
  return hn::GetLane(Type::numbers(hn::CappedTag<hn::TFromD<typename Type::Loaded>, 1>(), &compared));
}

// Overwrites the sums of number `row` with those of a row of `cols` elements: lane l holds elements l, l + kLanes, ...
template <class Type, Depth kDepth, bool kWeighted>
HWY_INLINE void finish_row(const Sums<Type, kDepth, kWeighted>& sums, std::size_t cols, PartialSums& rows,
                           std::size_t row) {
  using Row = Sums<Type, kDepth, kWeighted>;
  using Compared = typename Type::Compared;
  if constexpr (Row::kPlain) rows.sum[row] = total(sums.sum);
  if constexpr (Row::kLost) rows.lost[row] = total(sums.lost);
  if constexpr (Row::kRunning) {
    using Summed = typename Type::Summed;
    std::array<typename Places<Type>::Number, kLanes> sum, running;
    for (std::size_t v = 0; v < Row::kCount; ++v) {
      hn::StoreU(sums.sum[v], Summed(), sum.data() + v * kWidth<Summed>);
      hn::StoreU(sums.running[v], Summed(), running.data() + v * kWidth<Summed>);
    }
    // Element l + j kLanes has weight j kLanes + l + 1.
    const std::size_t steps_in_row = (cols + kLanes - 1) / kLanes;
    const auto steps = static_cast<double>(steps_in_row);
    double weighted = 0;
    for (std::size_t l = 0; l < kLanes; ++l) {
      weighted += static_cast<double>(kLanes) * (steps * sum[l] - running[l]) + static_cast<double>(l + 1) * sum[l];
    }
    rows.weighted[row] = weighted;
  }
  if constexpr (Row::kExtrema) {
    auto least = sums.smallest[0], most = sums.largest[0];
    for (std::size_t i = 1; i < Row::kCompared; ++i) {
      least = hn::Min(least, sums.smallest[i]);
      most = hn::Max(most, sums.largest[i]);
    }
    rows.smallest[row] = number<Type>(hn::GetLane(hn::MinOfLanes(Compared(), least)));
    rows.largest[row] = number<Type>(hn::GetLane(hn::MaxOfLanes(Compared(), most)));
  }
  if constexpr (Row::kNorms) rows.absolute[row] = total(sums.absolute);
  if constexpr (Row::kNorms) rows.square[row] = total(sums.square);
}

// Numbers by which rows or columns are multiplied, as `Summed` needs them.
template <class Summed>
class Narrowed {
 public:
  Narrowed(const double* numbers, std::size_t count) : numbers_(numbers) {
    if constexpr (kNarrower) {
      if (numbers == nullptr) return;
      for (std::size_t i = 0; i < count; ++i) narrowed_[i] = static_cast<float>(numbers[i]);
    }
  }
  HWY_INLINE const hn::TFromD<Summed>* data() const {
    if constexpr (kNarrower) {
      return narrowed_.data();
    } else {
      return numbers_;
    }
  }

 private:
  static constexpr bool kNarrower = std::is_same_v<Summed, FloatTag> && !std::is_same_v<FloatTag, DoubleTag>;
  alignas(64) std::array<float, kNarrower ? kTileCols : 0> narrowed_;
  const double* numbers_;
};

// The products of kLanes columns with numbers for each row, in registers.
template <class Type, bool kWeighted>
struct Products {
  using Summed = typename Type::Summed;
  using Vector = hn::Vec<Summed>;
  using Number = hn::TFromD<Summed>;
  struct At {
    Number *plain = nullptr, *lost = nullptr, *weighted = nullptr;
  };
  static constexpr std::size_t kCount = kVectors<Type>;
  Vector plain[kCount], lost[kCount], weighted[kCount];

  HWY_INLINE void load(const At& from, std::size_t at) {
    for (std::size_t v = 0; v < kCount; ++v, at += kWidth<Summed>) {
      plain[v] = hn::LoadU(Summed(), from.plain + at);
      if constexpr (Type::kCompensated) lost[v] = hn::LoadU(Summed(), from.lost + at);
      if constexpr (kWeighted) weighted[v] = hn::LoadU(Summed(), from.weighted + at);
    }
  }
  HWY_INLINE void store(const At& to, std::size_t at) const {
    for (std::size_t v = 0; v < kCount; ++v, at += kWidth<Summed>) {
      hn::StoreU(plain[v], Summed(), to.plain + at);
      if constexpr (Type::kCompensated) hn::StoreU(lost[v], Summed(), to.lost + at);
      if constexpr (kWeighted) hn::StoreU(weighted[v], Summed(), to.weighted + at);
    }
  }
  HWY_INLINE void add(const Step<Type>& x, const Number* plain_factor, const Number* weighted_factor) {
    const Vector p = hn::Set(Summed(), *plain_factor);
    for (std::size_t v = 0; v < kCount; ++v) add_to<Type, false>(plain[v], lost[v], hn::Mul(x.wide[v], p));
    if constexpr (kWeighted) {
      const Vector w = hn::Set(Summed(), *weighted_factor);
      for (std::size_t v = 0; v < kCount; ++v) weighted[v] = hn::Add(weighted[v], hn::Mul(x.wide[v], w));
    }
  }
};

// Says where numbers of a tile's columns are in memory while the tile is read: those of the block if they are in fp64,
// else here.
template <class Number>
class TileColumns {
 public:
  HWY_INLINE Number* begin(std::vector<double>& block, std::size_t cols, Number start) {
    if constexpr (kHere) {
      std::fill_n(here_.data(), (cols + kLanes - 1) / kLanes * kLanes, start);
      return here_.data();
    } else {
      return block.data();
    }
  }
  // Combines those of the tile, which `load` takes from memory in fp32, with those of the block.
  template <class Load, class Combine>
  HWY_INLINE void finish(std::vector<double>& block, std::size_t cols, Load load, Combine combine) const {
    if constexpr (kHere) {
      for (std::size_t col = 0; col < cols; col += kWidth<FloatTag>) {
        Doubles wide[kWidened];
        widen(load(&here_[col]), wide);
        for (std::size_t i = 0; i < kWidened; ++i) {
          double* const to = &block[col + i * kWidth<DoubleTag>];
          hn::StoreU(combine(hn::LoadU(DoubleTag(), to), wide[i]), DoubleTag(), to);
        }
      }
    }
  }

 private:
  static constexpr bool kHere = !std::is_same_v<Number, double>;
  alignas(64) std::array<Number, kHere ? kTileCols : 0> here_;
};

// Fetches from memory into the second cache what lies below a step of `kRows` rows, in the tile that is read next:
// hardware does not foresee it. Where a line of cache is several steps, each of them fetches a part of the rows.
template <class Type, std::size_t kRows>
HWY_INLINE void prefetch_below(const Tile& tile, const typename Type::Stored* data, std::size_t col) {
  constexpr std::size_t kLine = 64 / sizeof(typename Type::Stored);
  constexpr std::size_t kSteps = std::clamp<std::size_t>(kLine / kLanes, 1, kRows), kPart = kRows / kSteps;
  const auto first = static_cast<std::int64_t>(col / kLanes % kSteps * kPart);
  const auto* below = data + (tile.rows + first) * tile.row_stride + col;
  for (std::size_t r = 0; r < kPart; ++r, below += tile.row_stride) {
    for (std::size_t i = 0; i < kLanes; i += kLine) __builtin_prefetch(below + i, 0, 2);
  }
}

// Calls `function` with 0 to `kCount` - 1, each as a type. Compilers keep in registers what is indexed by these, and in
// memory what a loop indexes.
template <std::size_t kCount, class Function>
HWY_INLINE void for_each(Function function) {
  const auto call = [&]<std::size_t... i>(std::index_sequence<i...>)
                        TTRACE_INLINE_LAMBDA { (function(std::integral_constant<std::size_t, i>()), ...); };
  call(std::make_index_sequence<kCount>());
}

// Reads `kRows` rows of a tile from number `first` on. Their sums stay in registers, those of the columns in memory.
template <std::size_t kRows, bool kLeft, class Type, Depth kDepth, bool kWeighted>
HWY_INLINE void read_rows(const Tile& tile, std::int64_t first, const Places<Type>& columns,
                          const typename Products<Type, kWeighted>::At& left_times,
                          const typename Places<Type>::Number* plain, const typename Places<Type>::Number* weighted,
                          PartialSums& sums_of_rows, std::size_t first_sum) {
  Sums<Type, kDepth, kWeighted> rows[kRows];
  for_each<kRows>([&](auto r) TTRACE_INLINE_LAMBDA { rows[r].clear(); });
  const auto* const data = row_of<Type>(tile, first);
  const auto cols = static_cast<std::size_t>(tile.cols);
  const auto step = [&](std::size_t col, std::size_t count) TTRACE_INLINE_LAMBDA {
    Sums<Type, kDepth, kWeighted> sums;
    Products<Type, kWeighted> products;
    sums.load(columns, col);
    if constexpr (kLeft) products.load(left_times, col);
    prefetch_below<Type, kRows>(tile, data, col);
    for_each<kRows>([&](auto r) TTRACE_INLINE_LAMBDA {
      Step<Type> x;
      x.load(data + static_cast<std::int64_t>(r) * tile.row_stride + col, count);
      sums.add(x);
      rows[r].add(x);
      if constexpr (kLeft) products.add(x, plain + r, weighted + r);
    });
    sums.store(columns, col);
    if constexpr (kLeft) products.store(left_times, col);
  };
  std::size_t col = 0;
  for (; col + kLanes <= cols; col += kLanes) step(col, kLanes);
  if (col < cols) step(col, cols - col);
  if constexpr (kDepth >= Depth::kSums) {
    for_each<kRows>([&](auto r) TTRACE_INLINE_LAMBDA { finish_row(rows[r], cols, sums_of_rows, first_sum + r); });
  }
}

// Returns how many rows are read together, so that their sums take no more than three quarters of the registers.
constexpr std::size_t rows_together(std::size_t registers_a_row) {
  constexpr std::size_t kAll = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 32 : 16, kMost = 8;
  return std::bit_floor(std::clamp<std::size_t>(kAll * 3 / 4 / std::max<std::size_t>(registers_a_row, 1), 1, kMost));
}

template <class Type, Depth kDepth, bool kWeighted, bool kLeft>
HWY_NOINLINE void read_tile_as(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
                               PartialSums& columns, ColumnProducts& left_times) {
  using Lines = Sums<Type, kDepth, kWeighted>;
  using Number = typename Places<Type>::Number;
  const auto cols = static_cast<std::size_t>(tile.cols);
  TileColumns<std::conditional_t<Lines::kPlain, Number, double>> sums;
  TileColumns<std::conditional_t<kLeft, Number, double>> products;
  TileColumns<std::conditional_t<Lines::kExtrema, typename Type::Extremum, double>> smallest, largest;
  Places<Type> places;
  if constexpr (Lines::kPlain) places.sum = sums.begin(columns.sum, cols, 0);
  if constexpr (Lines::kExtrema) places.smallest = smallest.begin(columns.smallest, cols, Type::kGreatest);
  if constexpr (Lines::kExtrema) places.largest = largest.begin(columns.largest, cols, Type::kLeast);
  if constexpr (Lines::kLost) places.lost = columns.lost.data();
  if constexpr (Lines::kRunning) places.running = columns.running.data();
  if constexpr (Lines::kNorms) places.absolute = columns.absolute.data(), places.square = columns.square.data();
  typename Products<Type, kWeighted>::At product_places;
  if constexpr (kLeft) product_places.plain = products.begin(left_times.plain, cols, 0);
  if constexpr (kLeft && Type::kCompensated) product_places.lost = left_times.lost.data();
  if constexpr (kLeft && kWeighted) product_places.weighted = left_times.weighted.data();
  const Narrowed<typename Type::Summed> plain(reading.left.plain, static_cast<std::size_t>(tile.rows)),
      weighted(reading.left.weighted, static_cast<std::size_t>(tile.rows));

  constexpr std::size_t kRows = rows_together(Lines::kRegisters);
  const auto read = [&]<std::size_t kCount>(std::integral_constant<std::size_t, kCount>, std::int64_t row)
                        TTRACE_INLINE_LAMBDA {
                          read_rows<kCount, kLeft, Type, kDepth, kWeighted>(
                              tile, row, places, product_places, plain.data() + row, weighted.data() + row, rows,
                              static_cast<std::size_t>(first_row + row));
                        };
  std::int64_t row = 0;
  for (; row + std::int64_t{kRows} <= tile.rows; row += kRows) read(std::integral_constant<std::size_t, kRows>(), row);
  for (; row < tile.rows; ++row) read(std::integral_constant<std::size_t, 1>(), row);

  const auto add = [](Doubles a, Doubles b) TTRACE_INLINE_LAMBDA { return hn::Add(a, b); };
  const auto min = [](Doubles a, Doubles b) TTRACE_INLINE_LAMBDA { return hn::Min(a, b); };
  const auto max = [](Doubles a, Doubles b) TTRACE_INLINE_LAMBDA { return hn::Max(a, b); };
  const auto load = [](const float* sum) TTRACE_INLINE_LAMBDA { return hn::LoadU(FloatTag(), sum); };
  const auto numbers = [](const auto* compared) TTRACE_INLINE_LAMBDA { return Type::numbers(FloatTag(), compared); };
  sums.finish(columns.sum, cols, load, add);
  products.finish(left_times.plain, cols, load, add);
  smallest.finish(columns.smallest, cols, numbers, min);
  largest.finish(columns.largest, cols, numbers, max);
}

// Multiplies `kRows` rows of a tile from number `first` on.
template <std::size_t kRows, class Type, bool kWeighted>
HWY_INLINE void multiply_some_rows(const Tile& tile, std::int64_t first, const typename Places<Type>::Number* plain,
                                   const typename Places<Type>::Number* weighted, Pair* rows) {
  using Summed = typename Type::Summed;
  using Number = typename Places<Type>::Number;
  using Numbers = std::conditional_t<std::is_same_v<Number, double>, Float64, Float32>;
  using Vector = hn::Vec<Summed>;
  constexpr std::size_t kCount = kVectors<Type>;
  Vector plain_sums[kRows][kCount], lost[kRows][kCount], weighted_sums[kRows][kCount];
  for_each<kRows>([&](auto r) TTRACE_INLINE_LAMBDA {
    for (std::size_t v = 0; v < kCount; ++v) plain_sums[r][v] = lost[r][v] = weighted_sums[r][v] = hn::Zero(Summed());
  });
  const auto* const data = row_of<Type>(tile, first);
  const auto cols = static_cast<std::size_t>(tile.cols);
  const auto step = [&](std::size_t col, std::size_t count) TTRACE_INLINE_LAMBDA {
    Step<Numbers> p, w;
    p.load(plain + col, count);
    if constexpr (kWeighted) w.load(weighted + col, count);
    prefetch_below<Type, kRows>(tile, data, col);
    for_each<kRows>([&](auto r) TTRACE_INLINE_LAMBDA {
      Step<Type> x;
      x.load(data + static_cast<std::int64_t>(r) * tile.row_stride + col, count);
      for (std::size_t v = 0; v < kCount; ++v) {
        add_to<Type, false>(plain_sums[r][v], lost[r][v], hn::Mul(x.wide[v], p.wide[v]));
        if constexpr (kWeighted) weighted_sums[r][v] = hn::Add(weighted_sums[r][v], hn::Mul(x.wide[v], w.wide[v]));
      }
    });
  };
  std::size_t col = 0;
  for (; col + kLanes <= cols; col += kLanes) step(col, kLanes);
  if (col < cols) step(col, cols - col);
  for_each<kRows>([&](auto r) TTRACE_INLINE_LAMBDA {
    rows[r].plain = total(plain_sums[r]);
    if constexpr (Type::kCompensated) rows[r].plain += total(lost[r]);
    rows[r].weighted = kWeighted ? total(weighted_sums[r]) : 0;
  });
}

template <class Type, bool kWeighted>
HWY_NOINLINE void multiply_rows_as(const Tile& tile, const Factors& right, Pair* rows) {
  constexpr std::size_t kRows = rows_together((1 + Type::kCompensated + kWeighted) * kVectors<Type>);
  const auto cols = static_cast<std::size_t>(tile.cols);
  const Narrowed<typename Type::Summed> plain(right.plain, cols), weighted(right.weighted, cols);
  std::int64_t row = 0;
  for (; row + std::int64_t{kRows} <= tile.rows; row += kRows) {
    multiply_some_rows<kRows, Type, kWeighted>(tile, row, plain.data(), weighted.data(), rows + row);
  }
  for (; row < tile.rows; ++row) {
    multiply_some_rows<1, Type, kWeighted>(tile, row, plain.data(), weighted.data(), rows + row);
  }
}

template <bool kFlag>
using Flag = std::bool_constant<kFlag>;
// Calls `function` with `flag` as a type.
template <class Function>
HWY_INLINE void with_flag(bool flag, Function function) {
  flag ? function(Flag<true>()) : function(Flag<false>());
}

template <class Function>
HWY_INLINE void with_depth(Depth depth, Function function) {
  switch (depth) {
    case Depth::kNone:
      return function(std::integral_constant<Depth, Depth::kNone>());
    case Depth::kSums:
      return function(std::integral_constant<Depth, Depth::kSums>());
    case Depth::kExtrema:
      return function(std::integral_constant<Depth, Depth::kExtrema>());
    case Depth::kNorms:
      return function(std::integral_constant<Depth, Depth::kNorms>());
  }
}

// Reads a tile of elements of `Type`, summed in fp64, or in fp32 as `Short`, which is `Type` where there is no such way.
template <class Type, class Short = Type>
HWY_INLINE void read_tile_of(const Tile& tile, const TileReading& reading, std::int64_t first_row, PartialSums& rows,
                             PartialSums& columns, ColumnProducts& left_times) {
  with_depth(reading.depth, [&](auto depth) {
    with_flag(reading.left.plain != nullptr, [&](auto left) {
      if constexpr (depth() != Depth::kNorms && !std::is_same_v<Type, Short>) {
        if (reading.in_fp32 && !reading.weighted) {
          return read_tile_as<Short, depth(), false, left()>(tile, reading, first_row, rows, columns, left_times);
        }
      }
      with_flag(reading.weighted, [&](auto weighted) {
        read_tile_as<Type, depth(), weighted(), left()>(tile, reading, first_row, rows, columns, left_times);
      });
    });
  });
}

template <class Type, class Short = Type>
HWY_INLINE void multiply_rows_of(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  if constexpr (!std::is_same_v<Type, Short>) {
    if (in_fp32 && right.weighted == nullptr) return multiply_rows_as<Short, false>(tile, right, rows);
  }
  with_flag(right.weighted != nullptr, [&](auto weighted) { multiply_rows_as<Type, weighted()>(tile, right, rows); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();

#endif
