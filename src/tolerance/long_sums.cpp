// A convolution's gradient is a sum over samples and places, that of a bias over rows, that of an embedding over tokens.
// Libraries add such a sum up one by one, in fp32: its last terms are rounded to the step of nearly the whole sum. Where
// K terms have one sign the k-th partial sum is k terms large, its rounding errs by eps / sqrt(12) of that, and together
//
//   error = eps / sqrt(12) * sqrt(1 + 4 + ... + K^2) / K = eps sqrt(K) / 6
//
// of the sum; where terms are of both signs eps sqrt(K / 24) of what they leave. The perturbed runs add the same terms
// in the same order, and err alike: a term that moved by eps hardly changes what is rounded off a sum of thousands. Two
// ranks add half as many each. In PyTorch on the CPU, in units of eps, with the perturbed runs' largest response:
//
//                                     reference, from fp64     2 ranks, from reference     perturbed
//   Conv2d weight      K = 2048       5.4                      5.6                         0.6
//                      K = 16384      14.6                     16.3                        0.6
//   its bias           K = 2048       7.1                      6.6                         0.0
//                      K = 16384      15.8                     20.1                        0.5
//   ConvTranspose2d    K = 16384      7.3                      7.8                         0.5
//   LSTM's biases      K = 16384      14.0                     14.1                        0.5
//   Embedding, a row   K = 2341       5.1                      5.9                         0.0
//   Linear weight      K = 16384      1.9                      1.9                         1.7
//
// Products of matrices are added up in blocks, and have the floor of all else.
#include "tolerance/long_sums.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "tolerance/floors.h"

namespace ttrace {
namespace {

// The calls of the module, or the first members of what these return.
std::vector<const LogicalTensor*> calls_of(const Alignment& alignment, const TensorId& gradient, Kind kind,
                                           const std::string& module) {
  std::vector<const LogicalTensor*> calls = find_calls(alignment, gradient, kind, module);
  return calls.empty() ? find_calls(alignment, gradient, kind, module + ":0") : calls;
}

// True where the module looks rows of its weight up.
bool is_lookup(const Alignment& alignment, const TensorId& gradient, const std::string& module) {
  const auto inputs = calls_of(alignment, gradient, Kind::kInput, module);
  return !inputs.empty() && std::none_of(inputs.begin(), inputs.end(),
                                         [](const LogicalTensor* input) { return is_floating(input->dtype); });
}

// Returns how many elements of the module's output have a place of the parameter's in common: the channels; 0 where
// that is not known. Those of a convolution, or of a norm over channels, come after the samples.
std::int64_t channels_of(const Shape& output, const Shape& parameter) {
  if (output.empty()) return 0;
  const std::int64_t elements = element_count(parameter);
  if (elements == 1) return 1;
  if (parameter.size() == 1)
    return output.size() > 1 && output.back() != elements && output[1] == elements ? elements : output.back();
  if (parameter.size() == 2) return output.back();
  if (output.size() == parameter.size()) return output[1];
  return output.size() + 1 == parameter.size() ? output[0] : 0;
}

}  // namespace

std::optional<OwnRounding> rounding_one_by_one(const Alignment& alignment, const LogicalTensor& gradient) {
  if (gradient.id.kind != Kind::kParamGrad || !is_floating(gradient.dtype) || gradient.rows) return std::nullopt;
  const Shape& shape = whole_shape_of(gradient);
  const std::string module(owner_of(gradient.id.name));
  if (shape.size() == 2 && !is_lookup(alignment, gradient.id, module)) return std::nullopt;
  std::int64_t terms = 0;
  for (const LogicalTensor* output : calls_of(alignment, gradient.id, Kind::kGradOutput, module)) {
    const Shape& whole = whole_shape_of(*output);
    const std::int64_t channels = channels_of(whole, shape);
    if (channels > 0) terms += element_count(whole) / channels;
  }
  if (terms < 2) return std::nullopt;
  const double norm = summing_epsilon(epsilon_of(gradient.dtype)) * std::sqrt(static_cast<double>(terms)) / 6;
  // Errors of elements are of either sign; of so many the largest has five times the root mean square with a
  // probability of one in a million, and so has their mean.
  constexpr double kLargest = 5;
  const auto elements = static_cast<double>(element_count(shape));
  return OwnRounding{norm, std::min(norm, kLargest * norm / std::sqrt(elements)), kLargest * norm};
}

}  // namespace ttrace
