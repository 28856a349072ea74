#include "reproductions/inject.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "numeric/convert.h"
#include "reproductions/random.h"

namespace ttrace::reproductions {
namespace {

static_assert(std::endian::native == std::endian::little);

// The largest finite exponent as a power of two: 127 of fp32.
int largest_exponent(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return 1023;
    case Dtype::kFloat16:
    case Dtype::kFloat8E5M2:
      return 15;
    case Dtype::kFloat8E4M3:
      return 8;
    default:
      return 127;
  }
}

double near_infinity(double value, Dtype dtype) {
  int exponent = 0;
  const double fraction = value == 0 || !std::isfinite(value) ? 1 : 2 * std::fabs(std::frexp(value, &exponent));
  return std::copysign(std::ldexp(fraction, largest_exponent(dtype) - 1), value);
}

// Random bits until they make a finite number other than `before`.
void set_random(std::byte* number, Dtype dtype, double before, Random& random) {
  double after = before;
  do {
    const std::uint64_t bits = random.bits();
    std::memcpy(number, &bits, static_cast<std::size_t>(size_of(dtype)));
    widen(number, dtype, 1, &after);
  } while (!std::isfinite(after) || after == before);
}

}  // namespace

void flip_bit(std::byte* number, int bit) { number[bit / 8] ^= std::byte{1} << (bit % 8); }

Injection inject(const MutableMatrixView& matrix, FaultKind kind, std::uint64_t seed, const InjectionChoice& choice) {
  const Dtype dtype = matrix.layout.dtype;
  assert(is_floating(dtype) && matrix.layout.rows > 0 && matrix.layout.cols > 0);
  Random random(seed);
  Injection injection{kind, random.below(matrix.layout.rows), random.below(matrix.layout.cols)};
  const int bit = static_cast<int>(random.below(8 * size_of(dtype)));
  injection.row = choice.row.value_or(injection.row);
  injection.col = choice.col.value_or(injection.col);
  std::byte* const number = matrix.at(injection.row, injection.col);
  widen(number, dtype, 1, &injection.before);
  const auto set = [&](double value) { narrow(&value, dtype, 1, number); };
  switch (kind) {
    case FaultKind::kBitFlip:
      injection.bit = choice.bit.value_or(bit);
      flip_bit(number, injection.bit);
      break;
    case FaultKind::kInfinity:
      set(std::copysign(std::numeric_limits<double>::infinity(), injection.before));
      break;
    case FaultKind::kNan:
      set(std::numeric_limits<double>::quiet_NaN());
      break;
    case FaultKind::kNearInfinity:
      set(near_infinity(injection.before, dtype));
      break;
    case FaultKind::kRandomValue:
      set_random(number, dtype, injection.before, random);
      break;
  }
  widen(number, dtype, 1, &injection.after);
  return injection;
}

}  // namespace ttrace::reproductions
