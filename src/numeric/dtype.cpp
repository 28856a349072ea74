#include "numeric/dtype.h"

#include <array>
#include <cassert>
#include <cmath>

namespace ttrace {
namespace {

struct DtypeFacts {
  std::string_view name;
  std::int64_t size;
  int fraction_bits;  // stored bits of the significand; -1 for types that are not floating
};

// Rows are in the order of the enumerators, from `kDtypeFirst`.
constexpr std::array<DtypeFacts, kDtypeLast> kFacts = {{
    {"float64", 8, 52},
    {"float32", 4, 23},
    {"float16", 2, 10},
    {"bfloat16", 2, 7},
    {"float8_e4m3fn", 1, 3},
    {"float8_e5m2", 1, 2},
    {"int8", 1, -1},
    {"int16", 2, -1},
    {"int32", 4, -1},
    {"int64", 8, -1},
    {"uint8", 1, -1},
    {"bool", 1, -1},
}};

const DtypeFacts& facts(Dtype dtype) {
  const auto value = static_cast<std::uint8_t>(dtype);
  assert(value >= kDtypeFirst && value <= kDtypeLast);
  return kFacts[value - kDtypeFirst];
}

}  // namespace

std::string_view name_of(Dtype dtype) { return facts(dtype).name; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (std::uint8_t value = kDtypeFirst; value <= kDtypeLast; ++value) {
    if (kFacts[value - kDtypeFirst].name == name) return static_cast<Dtype>(value);
  }
  return std::nullopt;
}

std::int64_t size_of(Dtype dtype) { return facts(dtype).size; }

bool is_floating(Dtype dtype) { return facts(dtype).fraction_bits >= 0; }

double epsilon_of(Dtype dtype) {
  const int bits = facts(dtype).fraction_bits;
  return bits < 0 ? 0.0 : std::ldexp(1.0, -bits);
}

Dtype coarser(Dtype a, Dtype b) { return epsilon_of(a) > epsilon_of(b) ? a : b; }

}  // namespace ttrace
