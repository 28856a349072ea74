// Loads, compares and sums the elements of a tile. Kernels include this file that Highway compiles once for each
// instruction set; hence it has no ordinary include guard.
#if defined(TTRACE_ABFT_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_ABFT_ELEMENTS_INL_H_
#undef TTRACE_ABFT_ELEMENTS_INL_H_
#else
#define TTRACE_ABFT_ELEMENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "abft/tile_kernel.h"
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
constexpr std::size_t kLanes = kStepCols;
template <class Type>
constexpr std::size_t kVectors = kLanes / kWidth<typename Type::Summed>;

// Elements are compared in the type in which they are loaded.
template <class Tag>
struct ComparedAsLoaded {
  using Compared = Tag;
  using Extremum = hn::TFromD<Tag>;
  static constexpr Extremum kGreatest = std::numeric_limits<Extremum>::infinity(), kLeast = -kGreatest;
  static HWY_INLINE hn::Vec<Tag> comparable(const Extremum* data) { return hn::LoadU(Tag(), data); }
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> numbers(Floats floats, const Extremum* compared) {
    return hn::LoadU(floats, compared);
  }
};

// Elements of 16 bits are compared as integers, which takes half the vectors, and units that other sums leave idle:
// negative ones, stored as sign and magnitude, become two's complements. NaN come out beyond the infinities.
template <class Narrow>
struct ComparedAsIntegers {
  using Compared = hn::CappedTag<std::int16_t, 16>;
  using Extremum = std::int16_t;
  static constexpr Extremum kGreatest = std::numeric_limits<Extremum>::max(),
                            kLeast = std::numeric_limits<Extremum>::min();
  static HWY_INLINE hn::Vec<Compared> comparable(const std::uint16_t* data) {
    const hn::RebindToUnsigned<Compared> bits;
    return turned(Compared(), hn::BitCast(Compared(), hn::LoadU(bits, data)));
  }
  // Returns the numbers of what was compared.
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> numbers(Floats floats, const Extremum* compared) {
    const hn::Rebind<std::int16_t, Floats> integers;
    const hn::RebindToUnsigned<decltype(integers)> bits;
    std::uint16_t stored[hn::MaxLanes(floats)];
    hn::StoreU(hn::BitCast(bits, turned(integers, hn::LoadU(integers, compared))), bits, stored);
    return Narrow::load(floats, stored);
  }

 private:
  // Turns sign and magnitude into two's complements, and back.
  template <class Integers>
  static HWY_INLINE hn::Vec<Integers> turned(Integers integers, hn::Vec<Integers> x) {
    return hn::Xor(x, hn::And(hn::BroadcastSignBit(x), hn::Set(integers, 0x7fff)));
  }
};
template <class Narrow>
using Comparison =
    std::conditional_t<sizeof(typename Narrow::Stored) == 2, ComparedAsIntegers<Narrow>, ComparedAsLoaded<FloatTag>>;

// `Loaded` is the tag of the vectors in which elements are loaded, `Summed` of those in which they are summed,
// `Compared` of those in which they are compared: exact in all of them, narrow ones cost less.
template <class Narrow>
struct Widened : Comparison<Narrow> {
  using Stored = typename Narrow::Stored;
  using Loaded = FloatTag;
  using Summed = DoubleTag;
  static constexpr bool kCompensated = false;  // fp64 has 29 bits more than any sum of these needs
  static HWY_INLINE hn::Vec<Loaded> load(const Stored* data) { return Narrow::load(Loaded(), data); }
};

// Elements that are summed in fp32 within a tile, and in fp64 from tile to tile.
template <class Narrow>
struct Short : Widened<Narrow> {
  using Summed = FloatTag;
};

// The numbers by which Short elements are multiplied.
using Float32 = Short<narrow::Float32>;

struct Float64 : ComparedAsLoaded<DoubleTag> {
  using Stored = double;
  using Loaded = DoubleTag;
  using Summed = DoubleTag;
  static constexpr bool kCompensated = true;
  static HWY_INLINE Doubles load(const Stored* data) { return hn::LoadU(DoubleTag(), data); }
};

// Widens a vector of fp32 to two of fp64.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void widen(Floats x, Doubles* wide) { wide[0] = hn::PromoteTo(DoubleTag(), x); }
#else
HWY_INLINE void widen(Floats x, Doubles* wide) {
  wide[0] = hn::PromoteTo(DoubleTag(), hn::LowerHalf(HalfTag(), x));
  wide[1] = hn::PromoteTo(DoubleTag(), hn::UpperHalf(HalfTag(), x));
}
#endif
// A vector that is summed as it is loaded needs no widening.
template <class Vector>
HWY_INLINE void widen(Vector x, Vector* wide) {
  wide[0] = x;
}

// A step: kLanes adjacent elements of a row, as they are compared and as they are summed.
template <class Type>
struct Step {
  using Summed = typename Type::Summed;
  using Loaded = typename Type::Loaded;
  using Compared = typename Type::Compared;
  static constexpr std::size_t kLoaded = kLanes / kWidth<Loaded>, kCompared = kLanes / kWidth<Compared>;
  hn::Vec<Compared> compared[kCompared];
  hn::Vec<Summed> wide[kVectors<Type>];

  // Loads `count` elements: fewer than kLanes where rows end. The others are zero in sums; in comparisons they repeat
  // the first, and change nothing.
  HWY_INLINE void load(const typename Type::Stored* data, std::size_t count) {
    if (count == kLanes) return load_whole(data);
    typename Type::Stored buffer[kLanes];
    std::fill(std::begin(buffer), std::end(buffer), data[0]);
    std::memcpy(buffer, data, count * sizeof buffer[0]);
    load_whole(buffer);
    for (std::size_t v = 0; v < kVectors<Type>; ++v) {
      const std::size_t before = v * kWidth<Summed>,
                        here = count > before ? std::min(count - before, kWidth<Summed>) : 0;
      wide[v] = hn::IfThenElseZero(hn::FirstN(Summed(), here), wide[v]);
    }
  }

 private:
  HWY_INLINE void load_whole(const typename Type::Stored* data) {
    for (std::size_t i = 0; i < kLoaded; ++i) {
      widen(Type::load(data + i * kWidth<Loaded>), wide + i * kVectors<Type> / kLoaded);
    }
    for (std::size_t i = 0; i < kCompared; ++i) compared[i] = Type::comparable(data + i * kWidth<Compared>);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttrace::abft
HWY_AFTER_NAMESPACE();
#endif
