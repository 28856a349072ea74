// Says how each narrow type is stored, and widens it to vectors of fp32, exactly. Kernels include this file
// that Highway compiles once for each instruction set; hence it has no ordinary include guard.
#if defined(TTRACE_NUMERIC_NARROW_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_NUMERIC_NARROW_TYPES_INL_H_
#undef TTRACE_NUMERIC_NARROW_TYPES_INL_H_
#else
#define TTRACE_NUMERIC_NARROW_TYPES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace ttrace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Float32 {
  using Stored = float;
  using Bits = std::uint32_t;
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> load(Floats floats, const Stored* data) {
    return hn::LoadU(floats, data);
  }
};

struct BFloat16 {
  using Stored = std::uint16_t;
  using Bits = std::uint16_t;
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> load(Floats floats, const Stored* data) {
    const hn::Rebind<std::uint32_t, Floats> words;
    const auto bits = hn::PromoteTo(words, hn::LoadU(hn::Rebind<std::uint16_t, Floats>(), data));
    return hn::BitCast(floats, hn::ShiftLeft<16>(bits));
  }
};

// One sign bit, exponent and fraction. The last two move to their place in fp32, and a multiplication by a power of two
// corrects the exponent's bias; subnormals come out right by themselves. Magnitudes above `kLargest`, that of the
// largest finite number, are infinities and NaN, which get the exponent they need.
template <class Unsigned, int kFractionBits, Unsigned kLargest>
struct SmallFloat {
  using Stored = Unsigned;
  using Bits = Unsigned;
  static constexpr int kBits = 8 * sizeof(Unsigned);
  static constexpr std::uint32_t kBias = (1u << (kBits - kFractionBits - 2)) - 1;
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> load(Floats floats, const Stored* data) {
    const hn::Rebind<std::uint32_t, Floats> words;
    const hn::Rebind<std::int32_t, Floats> integers;
    const auto bits = hn::PromoteTo(words, hn::LoadU(hn::Rebind<Unsigned, Floats>(), data));
    const auto magnitude = hn::And(bits, hn::Set(words, (1u << (kBits - 1)) - 1));
    const auto sign = hn::ShiftLeft<32 - kBits>(hn::Xor(bits, magnitude));
    const auto power = hn::BitCast(floats, hn::Set(words, (2 * 127 - kBias) << 23));  // 2^(127 - kBias)
    const auto scaled = hn::Mul(hn::BitCast(floats, hn::ShiftLeft<23 - kFractionBits>(magnitude)), power);
    const auto nonfinite = hn::Gt(hn::BitCast(integers, magnitude), hn::Set(integers, kLargest));
    const auto exponent = hn::IfThenElseZero(hn::RebindMask(words, nonfinite), hn::Set(words, 0x7f800000));
    return hn::BitCast(floats, hn::Or(hn::Or(hn::BitCast(words, scaled), exponent), sign));
  }
};
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
// Processors with AVX2 have an instruction for it, which takes a third of the time. It turns on the bit that makes a
// NaN quiet; all other bits are the same.
struct Float16 : SmallFloat<std::uint16_t, 10, 0x7bff> {
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> load(Floats floats, const Stored* data) {
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::PromoteTo(floats, hn::BitCast(halves, hn::LoadU(hn::Rebind<std::uint16_t, Floats>(), data)));
  }
};
#else
using Float16 = SmallFloat<std::uint16_t, 10, 0x7bff>;
#endif
using Float8E4M3 = SmallFloat<std::uint8_t, 3, 0x7e>;  // no infinity, and one magnitude that is NaN
using Float8E5M2 = SmallFloat<std::uint8_t, 2, 0x7b>;

template <class Integer>
struct SmallInteger {
  using Stored = Integer;
  using Bits = std::make_unsigned_t<Integer>;
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> load(Floats floats, const Stored* data) {
    const auto bytes = hn::LoadU(hn::Rebind<Integer, Floats>(), data);
    return hn::ConvertTo(floats, hn::PromoteTo(hn::Rebind<std::int32_t, Floats>(), bytes));
  }
};
using Int8 = SmallInteger<std::int8_t>;
using UInt8 = SmallInteger<std::uint8_t>;  // and bool

}  // namespace HWY_NAMESPACE
}  // namespace ttrace
HWY_AFTER_NAMESPACE();
#endif
