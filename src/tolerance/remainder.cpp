// A difference of floating-point numbers of one size is exact, and a multiple of the last place of these: 2.0134 - 2 in
// fp32 is 0.0134 and a multiple of 2^-22, though its own last place is 2^-30. The terms are rounded to that step, in the
// reference and in the candidate, wherever in a sum they cancel. The perturbed runs may well see nothing of it: a
// perturbation by eps either moves the remainder by a whole step, or not at all. In the gradient of SAC's temperature,
// the mean of 64 numbers near 0, three of them moved it by 0, and two ranks by one step, 3.9e-6 of it.
//
// A loss may cross 0 from one iteration to the next, as the likelihood of a flow does, a critic's or a policy's loss: it
// is a sum of terms of either sign that are, together, at least as large as it has been, and rounded to their last
// place. WaveGlow's was 0.0240, 0.0046 and -0.0403 in three iterations; two ranks' were 3e-9 off in the second.
//
// A parameter, or its average in a buffer, that a step has brought near 0 is such a remainder, too. What tensors of few
// elements may be off by is read from their bits. Numbers end in k zeros by luck once in 2^k.
#include "tolerance/remainder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "base/tensor_name.h"
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

bool is_of_full_precision(const LogicalTensor& tensor) {
  return is_floating(tensor.dtype) && epsilon_of(tensor.dtype) <= epsilon_of(Dtype::kFloat32) && !tensor.rows &&
         !tensor.sketched;
}

}  // namespace

bool may_be_remainder(Kind kind) {
  return kind == Kind::kParamGrad || kind == Kind::kMainGrad || kind == Kind::kParamAfter || kind == Kind::kBufferAfter;
}

std::optional<OwnRounding> rounding_of_remainder(const LogicalTensor& tensor) {
  if (!may_be_remainder(tensor.id.kind) || !is_of_full_precision(tensor) ||
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

bool may_cross_zero(Kind kind, const std::string& name) {
  if (kind == Kind::kOutput) return true;
  return kind == Kind::kScalar && last_component(TensorName(name).path) == "loss";
}

OwnRoundings roundings_of_crossing(const Alignment& reference) {
  struct Sizes {
    double smallest = std::numeric_limits<double>::infinity(), largest = 0, epsilon = 0;
  };
  // What the first iteration is allowed does not grow with light ones, which hold no outputs.
  std::set<std::int32_t> whole;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind == Kind::kOutput) whole.insert(id.iteration);
  }
  std::map<ToleranceKey, Sizes> numbers;
  for (const auto& [id, tensor] : reference.tensors) {
    if (!whole.empty() && !whole.contains(id.iteration)) continue;
    if (!may_cross_zero(id.kind, id.name) || element_count(tensor.shape) != 1 || !is_of_full_precision(tensor))
      continue;
    const double size = std::fabs(values_of(tensor).at(0));
    if (size == 0 || !std::isfinite(size)) continue;
    Sizes& sizes = numbers[{id.kind, id.name}];
    sizes = {std::min(sizes.smallest, size), std::max(sizes.largest, size), epsilon_of(tensor.dtype)};
  }
  OwnRoundings all;
  for (const auto& [key, sizes] : numbers) {
    const double step = std::min(kMostOfRemainder, sizes.epsilon * sizes.largest / sizes.smallest);
    if (sizes.largest > sizes.smallest) all[key] = {step, step, step};
  }
  return all;
}

}  // namespace ttrace
