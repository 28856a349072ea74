#include "numeric/convert.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace ttrace;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
double widened(Dtype dtype, T value) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  double out = 0;
  widen(bytes.data(), dtype, 1, &out);
  return out;
}

double half(unsigned bits) { return widened(Dtype::kFloat16, static_cast<std::uint16_t>(bits)); }
double bfloat(unsigned bits) { return widened(Dtype::kBFloat16, static_cast<std::uint16_t>(bits)); }
double e4m3(unsigned bits) { return widened(Dtype::kFloat8E4M3, static_cast<std::uint8_t>(bits)); }
double e5m2(unsigned bits) { return widened(Dtype::kFloat8E5M2, static_cast<std::uint8_t>(bits)); }

// IEEE 754 from its definition, for the formats that follow it.
double defined(unsigned bits, int exponent_bits, int fraction_bits) {
  const double sign = (bits >> (exponent_bits + fraction_bits)) & 1 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * kInfinity : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

bool same_value(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST_SUITE("numeric") {
  TEST_CASE("every fp16, bf16 and e5m2 pattern widens to the value IEEE 754 gives it") {
    int wrong = 0;
    for (unsigned bits = 0; bits < 65536; ++bits) {
      wrong += !same_value(half(bits), defined(bits, 5, 10));
      wrong += !same_value(bfloat(bits), defined(bits, 8, 7));
    }
    for (unsigned bits = 0; bits < 256; ++bits) wrong += !same_value(e5m2(bits), defined(bits, 5, 2));
    CHECK(wrong == 0);
  }

  TEST_CASE("e4m3fn has no infinity, one NaN a sign, and 448 as its largest value") {
    CHECK(e4m3(0x7e) == 448);
    CHECK(e4m3(0xfe) == -448);
    CHECK(std::isnan(e4m3(0x7f)));
    CHECK(std::isnan(e4m3(0xff)));
    CHECK(e4m3(0x01) == 0x1p-9);
    int wrong = 0;
    for (unsigned bits = 0; bits < 256; ++bits) {
      if ((bits & 0x78) != 0x78) wrong += !same_value(e4m3(bits), defined(bits, 4, 3));
      if ((bits & 0x78) == 0x78 && (bits & 7) != 7) {
        wrong += e4m3(bits) != (bits & 0x80 ? -1 : 1) * std::ldexp(1 + (bits & 7) / 8.0, 8);
      }
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("fp64, fp32 and integers widen exactly") {
    CHECK(widened(Dtype::kFloat64, 1e-310) == 1e-310);
    CHECK(widened(Dtype::kFloat32, 1e-45f) == 0x1p-149);
    CHECK(widened(Dtype::kInt8, std::int8_t{-128}) == -128);
    CHECK(widened(Dtype::kInt16, std::int16_t{-32768}) == -32768);
    CHECK(widened(Dtype::kInt32, std::int32_t{-2147483647}) == -2147483647.0);
    CHECK(widened(Dtype::kUInt8, std::uint8_t{255}) == 255);
    CHECK(widened(Dtype::kBool, std::uint8_t{1}) == 1);
  }

  TEST_CASE("an int64 that fp64 cannot hold is kept as an integer") {
    const std::vector<std::int64_t> values = {std::numeric_limits<std::int64_t>::min(), (std::int64_t{1} << 53) + 1};
    std::array<std::int64_t, 2> out{};
    widen(reinterpret_cast<const std::byte*>(values.data()), Dtype::kInt64, 2, out.data());
    CHECK(out[0] == values[0]);
    CHECK(out[1] == values[1]);
  }

  TEST_CASE("every number of a narrow type comes back from fp64 as it was") {
    int wrong = 0;
    for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat8E4M3, Dtype::kFloat8E5M2}) {
      const unsigned patterns = 1u << (8 * size_of(dtype));
      for (unsigned bits = 0; bits < patterns; ++bits) {
        const auto bytes = std::bit_cast<std::array<std::byte, 4>>(bits);
        std::array<std::byte, 4> back{};
        double value = 0, again = 0;
        widen(bytes.data(), dtype, 1, &value);
        narrow(&value, dtype, 1, back.data());
        widen(back.data(), dtype, 1, &again);
        wrong += !same_value(value, again);
      }
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("what lies between two numbers is rounded to the nearer one, a tie to the even one") {
    const auto rounded = [](Dtype dtype, double value) {
      std::array<std::byte, 8> bytes{};
      narrow(&value, dtype, 1, bytes.data());
      widen(bytes.data(), dtype, 1, &value);
      return value;
    };
    CHECK(rounded(Dtype::kBFloat16, 1 + 0x1p-8) == 1);
    CHECK(rounded(Dtype::kBFloat16, 1 + 3 * 0x1p-8) == 1 + 0x1p-6);
    CHECK(rounded(Dtype::kBFloat16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
    CHECK(rounded(Dtype::kFloat16, 2 - 0x1p-12) == 2);
    CHECK(rounded(Dtype::kFloat16, 0x1p-25) == 0);
    CHECK(rounded(Dtype::kFloat16, -3 * 0x1p-25) == -0x1p-23);
    CHECK(rounded(Dtype::kFloat16, 65519) == 65504);
    CHECK(rounded(Dtype::kFloat16, 65520) == kInfinity);
    CHECK(rounded(Dtype::kBFloat16, -1e39) == -kInfinity);
    CHECK(rounded(Dtype::kFloat8E4M3, 463) == 448);
    CHECK(std::isnan(rounded(Dtype::kFloat8E4M3, 465)));
    CHECK(rounded(Dtype::kFloat8E5M2, 61439) == 57344);
    CHECK(rounded(Dtype::kFloat8E5M2, 61440) == kInfinity);
    CHECK(rounded(Dtype::kFloat32, 1 + 0x1p-24) == 1);
  }
}

}  // namespace
