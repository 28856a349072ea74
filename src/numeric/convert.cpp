#include "ttrace/numeric/convert.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

namespace ttrace {
namespace {

// An IEEE-like format of one byte: one sign bit, `exponent_bits`, `fraction_bits`. In `e4m3fn` the
// largest exponent holds ordinary numbers, there is no infinity, and only the all-ones pattern is NaN.
struct Format {
  int exponent_bits, fraction_bits;
  bool finite_only = false;
};

constexpr double power_of_two(int exponent) {
  double power = 1;
  for (; exponent > 0; --exponent) power *= 2;
  for (; exponent < 0; ++exponent) power /= 2;
  return power;
}

constexpr double decode(unsigned bits, Format format) {
  const unsigned fraction_mask = (1u << format.fraction_bits) - 1;
  const unsigned exponent_mask = (1u << format.exponent_bits) - 1;
  const unsigned fraction = bits & fraction_mask;
  const unsigned exponent = (bits >> format.fraction_bits) & exponent_mask;
  const bool negative = (bits >> (format.fraction_bits + format.exponent_bits)) & 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == exponent_mask && (!format.finite_only || fraction == fraction_mask)) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = fraction * power_of_two(1 - bias - format.fraction_bits);
  } else {
    value = (fraction + fraction_mask + 1) * power_of_two(static_cast<int>(exponent) - bias - format.fraction_bits);
  }
  return negative ? -value : value;
}

constexpr std::array<double, 256> table_of(Format format) {
  std::array<double, 256> table{};
  for (unsigned bits = 0; bits < table.size(); ++bits) table[bits] = decode(bits, format);
  return table;
}

constexpr auto kFloat8E4M3 = table_of({4, 3, true});
constexpr auto kFloat8E5M2 = table_of({5, 2});

// bf16 is the upper half of fp32.
struct FromBFloat16 {
  double operator()(std::uint16_t bits) const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

// Exponent and fraction move to their place in fp32; multiplying by 2^112 corrects the exponent's bias, also
// of subnormals. Infinities and NaN keep the largest exponent.
struct FromFloat16 {
  double operator()(std::uint16_t bits) const {
    const std::uint32_t magnitude = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    const std::uint32_t exponent = magnitude >= 0x7c00u ? 0x7f800000u : 0;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | exponent | sign);
  }
};

template <class Stored, class Out, class Convert>
void widen_each(const std::byte* data, std::int64_t count, Out* out, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, data + i * static_cast<std::int64_t>(sizeof stored), sizeof stored);
    out[i] = convert(stored);
  }
}

template <class Stored, class Out>
void widen_plain(const std::byte* data, std::int64_t count, Out* out) {
  widen_each<Stored>(data, count, out, [](Stored stored) { return static_cast<Out>(stored); });
}

template <class Out>
void widen_integer(const std::byte* data, Dtype dtype, std::int64_t count, Out* out) {
  switch (dtype) {
    case Dtype::kInt8:
      return widen_plain<std::int8_t>(data, count, out);
    case Dtype::kInt16:
      return widen_plain<std::int16_t>(data, count, out);
    case Dtype::kInt32:
      return widen_plain<std::int32_t>(data, count, out);
    case Dtype::kInt64:
      return widen_plain<std::int64_t>(data, count, out);
    case Dtype::kUInt8:
    case Dtype::kBool:
      return widen_plain<std::uint8_t>(data, count, out);
    default:
      assert(!"not an integer dtype");
  }
}

}  // namespace

void widen(const std::byte* data, Dtype dtype, std::int64_t count, double* out) {
  switch (dtype) {
    case Dtype::kFloat64:
      return widen_plain<double>(data, count, out);
    case Dtype::kFloat32:
      return widen_plain<float>(data, count, out);
    case Dtype::kFloat16:
      return widen_each<std::uint16_t>(data, count, out, FromFloat16());
    case Dtype::kBFloat16:
      return widen_each<std::uint16_t>(data, count, out, FromBFloat16());
    case Dtype::kFloat8E4M3:
      return widen_each<std::uint8_t>(data, count, out, [](std::uint8_t bits) { return kFloat8E4M3[bits]; });
    case Dtype::kFloat8E5M2:
      return widen_each<std::uint8_t>(data, count, out, [](std::uint8_t bits) { return kFloat8E5M2[bits]; });
    default:
      return widen_integer(data, dtype, count, out);
  }
}

void widen(const std::byte* data, Dtype dtype, std::int64_t count, std::int64_t* out) {
  widen_integer(data, dtype, count, out);
}

}  // namespace ttrace
