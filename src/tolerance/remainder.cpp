// A difference of floating-point numbers of one size is exact, and a multiple of the last place of these: 2.0134 - 2 in
// fp32 is 0.0134 and a multiple of 2^-22, though its own last place is 2^-30. The terms are rounded to that step, in the
// reference and in the candidate, wherever in a sum they cancel. The perturbed runs may well see nothing of it: a
// perturbation by eps either moves the remainder by a whole step, or not at all. In the gradient of SAC's temperature,
// the mean of 64 numbers near 0, three of them moved it by 0, and two ranks by one step, 3.9e-6 of it.
//
// So is a parameter, or its average in a buffer, that a step has brought near 0. What tensors of few elements may be off
// by is read from their bits. Numbers end in k zeros by luck once in 2^k.
#include "tolerance/remainder.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "merge/values.h"
#include "tolerance/floors.h"

namespace ttrace {
namespace {

// The largest power of two that the number is a multiple of; 0 of 0.
double step_of(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [1/2, 1)
  constexpr int kDigits = std::numeric_limits<double>::digits;
  const auto digits = static_cast<std::uint64_t>(std::fabs(std::ldexp(mantissa, kDigits)));
  return std::ldexp(1.0, exponent - kDigits + std::countr_zero(digits));
}

}  // namespace

bool may_be_remainder(Kind kind) {
  return kind == Kind::kParamGrad || kind == Kind::kMainGrad || kind == Kind::kParamAfter || kind == Kind::kBufferAfter;
}

std::optional<OwnRounding> rounding_of_remainder(const LogicalTensor& tensor) {
  if (!may_be_remainder(tensor.id.kind) || !is_floating(tensor.dtype) ||
      epsilon_of(tensor.dtype) > epsilon_of(Dtype::kFloat32) || tensor.rows || tensor.sketched ||
      element_count(tensor.shape) > kFewElements) {
    return std::nullopt;
  }
  double steps = 0, square = 0;
  for (const double value : values_of(tensor)) {
    const double step = step_of(value);
    steps += step * step;
    square += value * value;
  }
  const double norm = std::sqrt(steps / square);
  if (!(norm > epsilon_of(tensor.dtype)) || norm > kMostOfRemainder) return std::nullopt;
  return OwnRounding{norm, norm, norm * std::sqrt(static_cast<double>(element_count(tensor.shape)))};
}

}  // namespace ttrace
