// The same bits on every machine: element i of a row goes to lane i % kLanes however many vectors make up the lanes,
// the sums of a column take its elements in order (in fp32 those of one tile, whose sum is then added to those of the
// tiles above), and no multiply is fused with an add.
//
// Sums weighted by position cost one addition, not a multiplication: W, the sum of the running sums S of n elements,
// has counted the first element n times and the last once, so (n + 1) S - W weights them by 1 to n.
//
// Nothing is masked: NaN and Inf make the plain sum of their line not finite, and the caller checks that.

#include "abft/tile_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "numeric/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "abft/tile_kernel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numeric/narrow_types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttrace::abft {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace narrow = ttrace::HWY_NAMESPACE;

using DoubleTag = hn::CappedTag<double, 8>;
using FloatTag = hn::CappedTag<float, 16>;  // of scalars one, otherwise twice as many as of fp64
using HalfTag = hn::Half<FloatTag>;
using Doubles = hn::Vec<DoubleTag>;
using Floats = hn::Vec<FloatTag>;
template <class Tag>
constexpr std::size_t kWidth = hn::MaxLanes(Tag());
constexpr std::size_t kWidened = kWidth<FloatTag> / kWidth<DoubleTag>;  // vectors of fp64 that one of fp32 becomes
constexpr std::size_t kLanes = 16;
template <class Type>
constexpr std::size_t kRowVectors = kLanes / kWidth<typename Type::Summed>;
// A strip: the columns that one pass down the rows of a tile sums in registers.
constexpr std::size_t kVectors = 4;
template <class Type>
constexpr std::size_t kStrip = kVectors * kWidth<typename Type::Summed>;

// `Summed` is the tag of the vectors in which elements are summed, `Compared` of those in which they are compared:
// narrow ones are as exact in fp32, and cost half.
template <class Narrow>
struct Widened {
  using Stored = Narrow::Stored;
  using Summed = DoubleTag;
  using Compared = FloatTag;
  static constexpr bool kCompensated = false;  // fp64 has 29 bits more than any sum of these needs
  static HWY_INLINE hn::Vec<Compared> load(const Stored* data) { return Narrow::load(Compared(), data); }
};

// Elements that are summed in fp32 within a tile, and in fp64 from tile to tile.
template <class Narrow>
struct Short : Widened<Narrow> {
  using Summed = FloatTag;
};

// The numbers by which Short elements are multiplied.
using Float32 = Short<narrow::Float32>;

struct Float64 {
  using Stored = double;
  using Summed = DoubleTag;
  using Compared = DoubleTag;
  static constexpr bool kCompensated = true;
  static HWY_INLINE Doubles load(const Stored* data) { return hn::LoadU(DoubleTag(), data); }
};

static_assert(kStripCols % kStrip<Float64> == 0 && kStripCols % kStrip<Short<narrow::BFloat16>> == 0);

template <class Type>
HWY_INLINE const Type::Stored* row_of(const Tile& tile, std::int64_t row) {
  return reinterpret_cast<const Type::Stored*>(tile.data) + row * tile.row_stride;
}

// Widens a vector of fp32 to two of fp64.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void widen(Floats x, Doubles* wide) { wide[0] = hn::PromoteTo(DoubleTag(), x); }
#else
HWY_INLINE void widen(Floats x, Doubles* wide) {
  wide[0] = hn::PromoteTo(DoubleTag(), hn::LowerHalf(HalfTag(), x));
  wide[1] = hn::PromoteTo(DoubleTag(), hn::UpperHalf(HalfTag(), x));
}
#endif
// What is summed as it is loaded needs no widening.
template <class Vector>
HWY_INLINE void widen(Vector x, Vector* wide) {
  wide[0] = x;
}

// Adjacent elements of a row, as they are compared and as they are summed.
template <class Type, std::size_t kCount = kVectors>
struct Group {
  using Summed = Type::Summed;
  using Compared = Type::Compared;
  static constexpr std::size_t kCols = kCount * kWidth<Summed>;
  static constexpr std::size_t kCompared = kCols / kWidth<Compared>;
  hn::Vec<Compared> compared[kCompared];
  hn::Vec<Summed> wide[kCount];

  HWY_INLINE void load(const Type::Stored* data) {
    for (std::size_t i = 0; i < kCompared; ++i) {
      compared[i] = Type::load(data + i * kWidth<Compared>);
      widen(compared[i], wide + i * kCount / kCompared);
    }
  }
  // Loads `count` elements. The others are zero in sums; in comparisons they repeat the first, and change nothing.
  HWY_INLINE void load_part(const Type::Stored* data, std::size_t count) {
    typename Type::Stored buffer[kCols];
    std::fill(std::begin(buffer), std::end(buffer), data[0]);
    std::memcpy(buffer, data, count * sizeof buffer[0]);
    load(buffer);
    for (std::size_t v = 0; v < kCount; ++v) {
      const std::size_t before = v * kWidth<Summed>,
                        here = count > before ? std::min(count - before, kWidth<Summed>) : 0;
      wide[v] = hn::IfThenElseZero(hn::FirstN(Summed(), here), wide[v]);
    }
  }
};

// Adds `x` to `sum`. If the type needs it, `lost` collects the rounding error (Knuth's two-sum).
template <class Type, class Vector = hn::Vec<typename Type::Summed>>
HWY_INLINE void add_to(Vector& sum, Vector& lost, Vector x) {
  const Vector next = hn::Add(sum, x);
  if constexpr (Type::kCompensated) {
    const Vector added = hn::Sub(next, sum);
    lost = hn::Add(lost, hn::Add(hn::Sub(sum, hn::Sub(next, added)), hn::Sub(x, added)));
  }
  sum = next;
}

// Where sums lie in memory between strips: lanes of rows as they are in registers; sums of columns in fp64, to which
// those that are fp32 in registers are added.
template <class Number, class Extremum>
struct Places {
  Number *sum = nullptr, *lost = nullptr, *running = nullptr;
  Extremum *smallest = nullptr, *largest = nullptr;
  Number *absolute = nullptr, *square = nullptr;
};

template <class Tag, class Number>
constexpr bool kAsInMemory = std::is_same_v<hn::TFromD<Tag>, Number>;

// Returns the vector at `data`; where memory is wider, `start`, with which `store_with` will combine what is there.
template <class Tag, class Number>
HWY_INLINE hn::Vec<Tag> load_or(Tag tag, hn::TFromD<Tag> start, const Number* data) {
  if constexpr (kAsInMemory<Tag, Number>) {
    return hn::LoadU(tag, data);
  } else {
    return hn::Set(tag, start);
  }
}
template <class Tag, class Number, class Combine>
HWY_INLINE void store_with(Combine combine, hn::Vec<Tag> x, Tag tag, Number* data) {
  if constexpr (kAsInMemory<Tag, Number>) {
    hn::StoreU(x, tag, data);
  } else {
    Doubles wide[kWidened];
    widen(x, wide);
    for (std::size_t i = 0; i < kWidened; ++i) {
      Number* const here = data + i * kWidth<DoubleTag>;
      hn::StoreU(combine(hn::LoadU(DoubleTag(), here), wide[i]), DoubleTag(), here);
    }
  }
}
template <class Tag, class Number>
HWY_INLINE hn::Vec<Tag> load_sum(Tag tag, const Number* data) {
  return load_or(tag, 0, data);
}
template <class Tag, class Number>
HWY_INLINE void store_sum(hn::Vec<Tag> x, Tag tag, Number* data) {
  store_with([](Doubles a, Doubles b) HWY_ATTR { return hn::Add(a, b); }, x, tag, data);
}

// The sums of `kCount` vectors of lines, in registers.
template <class Type, Depth kDepth, bool kWeighted, std::size_t kCount>
struct Sums {
  using Elements = Group<Type, kCount>;
  using Summed = Type::Summed;
  using Compared = Type::Compared;
  using Vector = hn::Vec<Summed>;
  static constexpr bool kPlain = kDepth >= Depth::kSums, kRunning = kPlain && kWeighted;
  static constexpr bool kLost = kPlain && Type::kCompensated;
  static constexpr bool kExtrema = kDepth >= Depth::kExtrema, kNorms = kDepth >= Depth::kNorms;
  Vector sum[kCount], lost[kCount], running[kCount], absolute[kCount], square[kCount];
  hn::Vec<Compared> smallest[Elements::kCompared], largest[Elements::kCompared];

  // `from` has those sums that are asked for: from number `at` on, as ColumnSums or as lanes.
  template <class Number, class Extremum, class From>
  static HWY_INLINE Places<Number, Extremum> places_in(From& from, std::size_t at) {
    Places<Number, Extremum> places;
    if constexpr (kPlain) places.sum = &from.sum[at];
    if constexpr (kLost) places.lost = &from.lost[at];
    if constexpr (kRunning) places.running = &from.running[at];
    if constexpr (kExtrema) places.smallest = &from.smallest[at];
    if constexpr (kExtrema) places.largest = &from.largest[at];
    if constexpr (kNorms) places.absolute = &from.absolute[at];
    if constexpr (kNorms) places.square = &from.square[at];
    return places;
  }

  // Adds a part of the elements of a strip: `kCount` vectors from number `first` on.
  HWY_INLINE void add(const Group<Type>& x, std::size_t first) {
    for (std::size_t v = 0; v < kCount; ++v) {
      const Vector value = x.wide[first + v];
      if constexpr (kPlain) add_to<Type>(sum[v], lost[v], value);
      if constexpr (kRunning) running[v] = hn::Add(running[v], sum[v]);
      if constexpr (kNorms) absolute[v] = hn::Add(absolute[v], hn::Abs(value));
      if constexpr (kNorms) square[v] = hn::Add(square[v], hn::Mul(value, value));
    }
    if constexpr (kExtrema) {
      const std::size_t first_compared = first * Elements::kCompared / kCount;
      for (std::size_t i = 0; i < Elements::kCompared; ++i) {
        smallest[i] = hn::Min(smallest[i], x.compared[first_compared + i]);
        largest[i] = hn::Max(largest[i], x.compared[first_compared + i]);
      }
    }
  }

  // Written out, because a loop over the members' addresses would keep them in memory instead of registers.
  template <class Number, class Extremum>
  HWY_INLINE void load(const Places<Number, Extremum>& from) {
    for (std::size_t v = 0; v < kCount; ++v) {
      const std::size_t at = v * kWidth<Summed>;
      if constexpr (kPlain) sum[v] = load_sum(Summed(), from.sum + at);
      if constexpr (kLost) lost[v] = load_sum(Summed(), from.lost + at);
      if constexpr (kRunning) running[v] = load_sum(Summed(), from.running + at);
      if constexpr (kNorms) absolute[v] = load_sum(Summed(), from.absolute + at);
      if constexpr (kNorms) square[v] = load_sum(Summed(), from.square + at);
    }
    if constexpr (kExtrema) {
      constexpr auto kInfinity = std::numeric_limits<hn::TFromD<Compared>>::infinity();
      for (std::size_t i = 0; i < Elements::kCompared; ++i) {
        smallest[i] = load_or(Compared(), kInfinity, from.smallest + i * kWidth<Compared>);
        largest[i] = load_or(Compared(), -kInfinity, from.largest + i * kWidth<Compared>);
      }
    }
  }
  template <class Number, class Extremum>
  HWY_INLINE void store(const Places<Number, Extremum>& to) const {
    for (std::size_t v = 0; v < kCount; ++v) {
      const std::size_t at = v * kWidth<Summed>;
      if constexpr (kPlain) store_sum(sum[v], Summed(), to.sum + at);
      if constexpr (kLost) store_sum(lost[v], Summed(), to.lost + at);
      if constexpr (kRunning) store_sum(running[v], Summed(), to.running + at);
      if constexpr (kNorms) store_sum(absolute[v], Summed(), to.absolute + at);
      if constexpr (kNorms) store_sum(square[v], Summed(), to.square + at);
    }
    if constexpr (kExtrema) {
      const auto min = [](Doubles a, Doubles b) HWY_ATTR { return hn::Min(a, b); };
      const auto max = [](Doubles a, Doubles b) HWY_ATTR { return hn::Max(a, b); };
      for (std::size_t i = 0; i < Elements::kCompared; ++i) {
        store_with(min, smallest[i], Compared(), to.smallest + i * kWidth<Compared>);
        store_with(max, largest[i], Compared(), to.largest + i * kWidth<Compared>);
      }
    }
  }
};

// Sums the lanes in the same order on every machine: the upper half to the lower, until one is left.
template <class Number>
HWY_INLINE double total(const std::array<Number, kLanes>& lanes) {
  std::array<double, kLanes / 2> sums;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<double>(lanes[i]) + static_cast<double>(lanes[i + sums.size()]);
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// The sums of one row of a tile, lane by lane: lane l holds elements l, l + kLanes, ...
template <class Type, Depth kDepth, bool kWeighted>
class RowLanes {
 public:
  // The lanes that are not summed stay as they are: to clear them all would take as long as a row takes.
  HWY_INLINE RowLanes() {  // NOLINT(cppcoreguidelines-pro-type-member-init)
    if constexpr (Lanes::kPlain) lanes_.sum.fill(0);
    if constexpr (Lanes::kLost) lanes_.lost.fill(0);
    if constexpr (Lanes::kRunning) lanes_.running.fill(0);
    if constexpr (Lanes::kExtrema) lanes_.smallest.fill(std::numeric_limits<Extremum>::infinity());
    if constexpr (Lanes::kExtrema) lanes_.largest.fill(-std::numeric_limits<Extremum>::infinity());
    if constexpr (Lanes::kNorms) lanes_.absolute.fill(0);
    if constexpr (Lanes::kNorms) lanes_.square.fill(0);
  }

  // Adds a strip, whose first column is `col`.
  HWY_INLINE void add(const Group<Type>& x, std::size_t col) {
    Lanes sums;
    const auto places = Lanes::template places_in<Number, Extremum>(lanes_, col % kLanes);
    sums.load(places);
    for (std::size_t first = 0; first < kVectors; first += kPart) sums.add(x, first);
    sums.store(places);
  }

  HWY_INLINE RowSums finish(std::size_t cols) {
    RowSums result;
    if constexpr (Lanes::kPlain) result.sum = total(lanes_.sum);
    if constexpr (Lanes::kLost) result.lost = total(lanes_.lost);
    if constexpr (Lanes::kRunning) result.weighted = weighted(cols);
    if constexpr (Lanes::kExtrema) {
      const typename Type::Compared compared;
      constexpr std::size_t kStep = hn::MaxLanes(typename Type::Compared());
      auto smallest = hn::LoadU(compared, lanes_.smallest.data()), largest = hn::LoadU(compared, lanes_.largest.data());
      for (std::size_t i = kStep; i < kLanes; i += kStep) {
        smallest = hn::Min(smallest, hn::LoadU(compared, &lanes_.smallest[i]));
        largest = hn::Max(largest, hn::LoadU(compared, &lanes_.largest[i]));
      }
      result.smallest = hn::GetLane(hn::MinOfLanes(compared, smallest));
      result.largest = hn::GetLane(hn::MaxOfLanes(compared, largest));
    }
    if constexpr (Lanes::kNorms) result.absolute = total(lanes_.absolute);
    if constexpr (Lanes::kNorms) result.square = total(lanes_.square);
    return result;
  }

 private:
  using Number = hn::TFromD<typename Type::Summed>;
  using Extremum = hn::TFromD<typename Type::Compared>;
  static constexpr std::size_t kPart = std::min(kVectors, kRowVectors<Type>);
  using Lanes = Sums<Type, kDepth, kWeighted, kPart>;

  // Element l + j kLanes has weight j kLanes + l + 1.
  HWY_INLINE double weighted(std::size_t cols) {
    constexpr std::size_t kWidest = 32;  // strip
    const std::size_t steps = (cols + kWidest - 1) / kWidest * (kWidest / kLanes);
    double result = 0;
    for (std::size_t l = 0; l < kLanes; ++l) {
      // Strips are narrower in other instruction sets: all end where the widest does.
      const std::size_t first = l / kStrip<Type> * kStrip<Type>;  // of the strip that holds lane l first
      std::size_t done = cols > first ? (cols - first + kLanes - 1) / kLanes : 0;
      if constexpr (kStrip<Type> > kLanes) done = steps;
      for (; done < steps; ++done) lanes_.running[l] += lanes_.sum[l];
      result += static_cast<double>(kLanes) * (static_cast<double>(steps) * lanes_.sum[l] - lanes_.running[l]) +
                static_cast<double>(l + 1) * lanes_.sum[l];
    }
    return result;
  }

  struct {
    std::array<Number, kLanes> sum, lost, running, absolute, square;
    std::array<Extremum, kLanes> smallest, largest;
  } lanes_;
};

// The products of a strip's columns with numbers for each row, in registers.
template <class Type, bool kWeighted>
struct Products {
  using Summed = Type::Summed;
  using Vector = hn::Vec<Summed>;
  Vector plain[kVectors], lost[kVectors], weighted[kVectors];

  HWY_INLINE void load(const ColumnProducts& columns, std::size_t at) {
    for (std::size_t v = 0; v < kVectors; ++v, at += kWidth<Summed>) {
      plain[v] = load_sum(Summed(), &columns.plain[at]);
      if constexpr (Type::kCompensated) lost[v] = load_sum(Summed(), &columns.lost[at]);
      if constexpr (kWeighted) weighted[v] = load_sum(Summed(), &columns.weighted[at]);
    }
  }
  HWY_INLINE void store(ColumnProducts& columns, std::size_t at) const {
    for (std::size_t v = 0; v < kVectors; ++v, at += kWidth<Summed>) {
      store_sum(plain[v], Summed(), &columns.plain[at]);
      if constexpr (Type::kCompensated) store_sum(lost[v], Summed(), &columns.lost[at]);
      if constexpr (kWeighted) store_sum(weighted[v], Summed(), &columns.weighted[at]);
    }
  }
  HWY_INLINE void add(const Group<Type>& x, const Factors& left, std::int64_t row) {
    const Vector p = hn::Set(Summed(), static_cast<hn::TFromD<Summed>>(left.plain[row]));
    for (std::size_t v = 0; v < kVectors; ++v) add_to<Type>(plain[v], lost[v], hn::Mul(x.wide[v], p));
    if constexpr (kWeighted) {
      const Vector w = hn::Set(Summed(), static_cast<hn::TFromD<Summed>>(left.weighted[row]));
      for (std::size_t v = 0; v < kVectors; ++v) weighted[v] = hn::Add(weighted[v], hn::Mul(x.wide[v], w));
    }
  }
};

// Fetches `kCols` columns of a row of the tile below from memory into the second cache: hardware does not foresee them.
template <class Type, std::size_t kCols>
HWY_INLINE void prefetch_below(const Tile& tile, const typename Type::Stored* data) {
  constexpr std::size_t kLine = 64 / sizeof(typename Type::Stored);
  for (std::size_t i = 0; i < kCols; i += kLine) {
    __builtin_prefetch(data + tile.rows * tile.row_stride + i, 0, 2);
  }
}

// Reads `cols` columns of a tile from column `col` on: a whole strip, or fewer where it ends.
template <bool kLeft, class Type, Depth kDepth, bool kWeighted>
HWY_INLINE void read_strip(const Tile& tile, std::size_t col, std::size_t cols, const Factors& left,
                           RowLanes<Type, kDepth, kWeighted>* rows, ColumnSums& columns, ColumnProducts& left_times) {
  Sums<Type, kDepth, kWeighted, kVectors> sums;
  Products<Type, kWeighted> products;
  const auto places = decltype(sums)::template places_in<double, double>(columns, col);
  sums.load(places);
  if constexpr (kLeft) products.load(left_times, col);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const auto* const data = row_of<Type>(tile, row) + col;
    Group<Type> x;
    if (cols == kStrip<Type>) {
      prefetch_below<Type, kStrip<Type>>(tile, data);
      x.load(data);
    } else {
      x.load_part(data, cols);
    }
    sums.add(x, 0);
    rows[row].add(x, col);
    if constexpr (kLeft) products.add(x, left, row);
  }
  sums.store(places);
  if constexpr (kLeft) products.store(left_times, col);
}

template <class Type, Depth kDepth, bool kWeighted, bool kLeft>
HWY_NOINLINE void read_tile_as(const Tile& tile, const TileReading& reading, RowSums* rows, ColumnSums& columns,
                               ColumnProducts& left_times) {
  RowLanes<Type, kDepth, kWeighted> lanes[kTileRows];
  const auto cols = static_cast<std::size_t>(tile.cols);
  std::size_t col = 0;
  for (; col + kStrip<Type> <= cols; col += kStrip<Type>) {
    read_strip<kLeft>(tile, col, kStrip<Type>, reading.left, lanes, columns, left_times);
  }
  if (col < cols) read_strip<kLeft>(tile, col, cols - col, reading.left, lanes, columns, left_times);
  if constexpr (kDepth >= Depth::kSums) {
    for (std::int64_t row = 0; row < tile.rows; ++row) rows[row] = lanes[row].finish(cols);
  }
}

// The numbers by which rows are multiplied, as vectors of `Summed` need them.
template <class Summed>
class RightFactors {
 public:
  RightFactors(const double* numbers, std::size_t count) : numbers_(numbers) {
    if constexpr (kNarrower) {
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
  static constexpr bool kNarrower = std::is_same_v<Summed, FloatTag>;
  const double* numbers_;
  std::array<float, kNarrower ? kTileCols : 0> narrowed_;
};

template <class Type, bool kWeighted>
HWY_NOINLINE void multiply_rows_as(const Tile& tile, const Factors& right, Pair* rows) {
  using Summed = Type::Summed;
  using Number = hn::TFromD<Summed>;
  using Vector = hn::Vec<Summed>;
  constexpr std::size_t kCount = kRowVectors<Type>;
  using Numbers = std::conditional_t<kAsInMemory<Summed, double>, Float64, Float32>;
  const auto cols = static_cast<std::size_t>(tile.cols);
  const RightFactors<Summed> plain_factors(right.plain, cols), weighted_factors(right.weighted, kWeighted ? cols : 0);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const auto* const data = row_of<Type>(tile, row);
    Vector plain[kCount], lost[kCount], weighted[kCount];
    for (std::size_t v = 0; v < kCount; ++v) plain[v] = lost[v] = weighted[v] = hn::Zero(Summed());
    const auto add = [&](const Group<Type, kCount>& x, const Group<Numbers, kCount>& p, const Group<Numbers, kCount>& w)
                         HWY_ATTR {
                           for (std::size_t v = 0; v < kCount; ++v) {
                             add_to<Type>(plain[v], lost[v], hn::Mul(x.wide[v], p.wide[v]));
                             if constexpr (kWeighted) weighted[v] = hn::Add(weighted[v], hn::Mul(x.wide[v], w.wide[v]));
                           }
                         };
    Group<Type, kCount> x;
    Group<Numbers, kCount> p, w;
    std::size_t i = 0;
    for (; i + kLanes <= cols; i += kLanes) {
      prefetch_below<Type, kLanes>(tile, data + i);
      x.load(data + i);
      p.load(plain_factors.data() + i);
      if constexpr (kWeighted) w.load(weighted_factors.data() + i);
      add(x, p, w);
    }
    if (i < cols) {
      x.load_part(data + i, cols - i);
      p.load_part(plain_factors.data() + i, cols - i);
      if constexpr (kWeighted) w.load_part(weighted_factors.data() + i, cols - i);
      add(x, p, w);
    }
    const auto sum = [](const Vector* lanes) HWY_ATTR {
      std::array<Number, kLanes> stored;
      for (std::size_t v = 0; v < kCount; ++v) hn::StoreU(lanes[v], Summed(), stored.data() + v * kWidth<Summed>);
      return total(stored);
    };
    rows[row] = {sum(plain) + sum(lost), sum(weighted)};
  }
}

// Calls `function(type)` with the type that holds elements of `dtype`, summed in fp64.
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

// Calls `function(type)` with the type that holds elements of `dtype`, one of 16 bits, summed in fp32.
template <class Function>
HWY_INLINE void with_short_type(Dtype dtype, Function function) {
  if (dtype == Dtype::kBFloat16) return function(Short<narrow::BFloat16>());
  function(Short<narrow::Float16>());
}
bool is_short(Dtype dtype) { return dtype == Dtype::kBFloat16 || dtype == Dtype::kFloat16; }

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

void ReadTile(const Tile& tile, const TileReading& reading, RowSums* rows, ColumnSums& columns,
              ColumnProducts& left_times) {
  with_depth(reading.depth, [&](auto depth) {
    with_flag(reading.left.plain != nullptr, [&](auto left) {
      if constexpr (depth() != Depth::kNorms) {
        if (reading.in_fp32 && !reading.weighted && is_short(tile.dtype)) {
          return with_short_type(tile.dtype, [&](auto type) {
            read_tile_as<decltype(type), depth(), false, left()>(tile, reading, rows, columns, left_times);
          });
        }
      }
      with_type(tile.dtype, [&](auto type) {
        with_flag(reading.weighted, [&](auto weighted) {
          read_tile_as<decltype(type), depth(), weighted(), left()>(tile, reading, rows, columns, left_times);
        });
      });
    });
  });
}

void MultiplyRows(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  if (in_fp32 && right.weighted == nullptr && is_short(tile.dtype)) {
    return with_short_type(tile.dtype, [&](auto type) { multiply_rows_as<decltype(type), false>(tile, right, rows); });
  }
  with_type(tile.dtype, [&](auto type) {
    with_flag(right.weighted != nullptr,
              [&](auto weighted) { multiply_rows_as<decltype(type), weighted()>(tile, right, rows); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttrace::abft {

HWY_EXPORT(ReadTile);
HWY_EXPORT(MultiplyRows);

bool has_kernel(Dtype dtype) {
  return dtype == Dtype::kFloat64 || dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16;
}

void read_tile(const Tile& tile, const TileReading& reading, RowSums* rows, ColumnSums& columns,
               ColumnProducts& left_times) {
  HWY_DYNAMIC_DISPATCH(ReadTile)(tile, reading, rows, columns, left_times);
}

void multiply_rows(const Tile& tile, const Factors& right, bool in_fp32, Pair* rows) {
  HWY_DYNAMIC_DISPATCH(MultiplyRows)(tile, right, in_fp32, rows);
}

}  // namespace ttrace::abft
#endif
