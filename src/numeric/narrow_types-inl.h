// Says how each narrow floating type is stored, and widens it to vectors of fp32, exactly. Kernels include this file
// that Highway compiles once for each instruction set; hence it has no ordinary include guard.
#if defined(TTRACE_NUMERIC_NARROW_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTRACE_NUMERIC_NARROW_TYPES_INL_H_
#undef TTRACE_NUMERIC_NARROW_TYPES_INL_H_
#else
#define TTRACE_NUMERIC_NARROW_TYPES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

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

// Exponent and fraction move to their place in fp32, and a multiplication by 2^112 corrects the exponent's
// bias; subnormals come out right by themselves, infinities and NaN get the exponent they need.
struct Float16 {
  using Stored = std::uint16_t;
  using Bits = std::uint16_t;
  template <class Floats>
  static HWY_INLINE hn::Vec<Floats> load(Floats floats, const Stored* data) {
    const hn::Rebind<std::uint32_t, Floats> words;
    const hn::Rebind<std::int32_t, Floats> integers;
    const auto bits = hn::PromoteTo(words, hn::LoadU(hn::Rebind<std::uint16_t, Floats>(), data));
    const auto magnitude = hn::And(bits, hn::Set(words, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto scaled = hn::Mul(hn::BitCast(floats, hn::ShiftLeft<13>(magnitude)), hn::Set(floats, 0x1p112f));
    const auto nonfinite = hn::Gt(hn::BitCast(integers, magnitude), hn::Set(integers, 0x7bff));
    const auto exponent = hn::IfThenElseZero(hn::RebindMask(words, nonfinite), hn::Set(words, 0x7f800000));
    return hn::BitCast(floats, hn::Or(hn::Or(hn::BitCast(words, scaled), exponent), sign));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace ttrace
HWY_AFTER_NAMESPACE();
#endif
