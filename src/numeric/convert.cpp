#include "numeric/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
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

// The values of all 256 patterns.
constexpr std::array<double, 256> decode_all(Format format) {
  std::array<double, 256> table{};
  for (unsigned bits = 0; bits < table.size(); ++bits) table[bits] = decode(bits, format);
  return table;
}

constexpr Format kFloat16Format = {5, 10}, kBFloat16Format = {8, 7}, kE4M3Format = {4, 3, true}, kE5M2Format = {5, 2};
constexpr auto kFloat8E4M3 = decode_all(kE4M3Format);
constexpr auto kFloat8E5M2 = decode_all(kE5M2Format);

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

// The pattern of the number of `format` that is nearest to `value`, for any value.
unsigned encode_any(double value, Format format) {
  const unsigned fraction_mask = (1u << format.fraction_bits) - 1;
  const unsigned exponent_mask = (1u << format.exponent_bits) - 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const unsigned sign = (std::signbit(value) ? 1u : 0u) << (format.exponent_bits + format.fraction_bits);
  const unsigned infinity = exponent_mask << format.fraction_bits;
  const unsigned nan = format.finite_only ? infinity | fraction_mask : infinity | (fraction_mask + 1) >> 1;
  const unsigned beyond = format.finite_only ? nan : infinity;  // for magnitudes that are too large
  if (std::isnan(value)) return sign | nan;
  const double magnitude = std::fabs(value);
  const int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  if (std::isinf(value) || exponent > bias + 1) return sign | beyond;
  // Counts units of the last place; a carry out of the fraction moves on into the exponent.
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, format.fraction_bits - exponent)));
  const unsigned pattern = (static_cast<unsigned>(exponent + bias - 1) << format.fraction_bits) + units;
  return sign | std::min(pattern, beyond);
}

// Does the same, but quickly where the result is a normal number: it rounds the bits of the fp64 number in place and
// moves the exponent.
unsigned encode(double value, Format format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1, dropped = 52 - format.fraction_bits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const auto exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent < 1 - bias || exponent >= bias) return encode_any(value, format);
  const std::uint64_t odd = magnitude >> dropped & 1;
  const std::uint64_t rounded = (magnitude + (std::uint64_t{1} << (dropped - 1)) - 1 + odd) >> dropped;
  const std::uint64_t pattern = rounded - (static_cast<std::uint64_t>(1023 - bias) << format.fraction_bits);
  return static_cast<unsigned>(pattern | bits >> 63 << (format.exponent_bits + format.fraction_bits));
}

template <class Stored, class Convert>
void narrow_each(const double* values, std::int64_t count, std::byte* out, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Stored stored = static_cast<Stored>(convert(values[i]));
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof stored), &stored, sizeof stored);
  }
}

template <class Stored>
void narrow_to(Format format, const double* values, std::int64_t count, std::byte* out) {
  narrow_each<Stored>(values, count, out, [format](double value) { return encode(value, format); });
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

void narrow(const double* values, Dtype dtype, std::int64_t count, std::byte* out) {
  switch (dtype) {
    case Dtype::kFloat64:
      return narrow_each<double>(values, count, out, [](double value) { return value; });
    case Dtype::kFloat32:
      return narrow_each<float>(values, count, out, [](double value) { return static_cast<float>(value); });
    case Dtype::kFloat16:
      return narrow_to<std::uint16_t>(kFloat16Format, values, count, out);
    case Dtype::kBFloat16:
      return narrow_to<std::uint16_t>(kBFloat16Format, values, count, out);
    case Dtype::kFloat8E4M3:
      return narrow_to<std::uint8_t>(kE4M3Format, values, count, out);
    case Dtype::kFloat8E5M2:
      return narrow_to<std::uint8_t>(kE5M2Format, values, count, out);
    default:
      assert(!"not a floating dtype");
  }
}

}  // namespace ttrace
