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
//
// Terms may nearly cancel: a discriminator's last bias is pulled up by what is real and down by what is made. Sums on the
// way are then many times what is left in the end, and so are their roundings. Of a bias of few elements, which the
// perturbed runs hit or miss by luck, they are added up from the terms that the trace holds:
//
//   error = eps / sqrt(12) * sqrt(S_1^2 + ... + S_K^2) / S_K      S_k the sum of the first k terms
//
// Terms may also be alike, +c and -c, as an L1 loss makes them: then all of a stretch of sums are rounded the same way,
// and errors do not average out. What the reference's own gradient is off by, from its terms added up in fp64, shows it:
// in HiFi-GAN's discriminators 1.8e-6, where 7e-7 are expected of a sum of 512 such terms, and the perturbed runs
// responded by 7e-8.
#include "tolerance/long_sums.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "tolerance/floors.h"
#include "tolerance/remainder.h"

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

bool is_recorded(const LogicalTensor& tensor) { return !tensor.sketched && !tensor.rows; }

// Adds up the terms of a bias's gradient.
class BiasTerms {
 public:
  // `is_last`: whether channels are the last dimension of the output, and not the one behind the samples.
  BiasTerms(const Shape& bias, bool is_last)
      : sums_(static_cast<std::size_t>(element_count(bias))), is_last_(is_last) {}

  void add(const LogicalTensor& of_output) {
    const Shape& shape = of_output.shape;
    const bool is_last = is_last_ || sums_.size() == 1 || shape.size() < 3;
    const std::int64_t inside = is_last ? 1 : element_count(Shape(shape.begin() + 2, shape.end()));
    const Values terms = values_of(of_output);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      double& sum = sums_[i / static_cast<std::size_t>(inside) % sums_.size()];
      sum += terms[i];
      squares_ += sum * sum;
    }
  }

  // Returns what was rounded off the sums, relatively and in units of `epsilon`: as their terms make it, of few elements
  // no less than what is expected of such. Absent where they are not what was recorded.
  std::optional<double> rounding(const Values& recorded, double epsilon) const {
    double square = 0, difference = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      square += sums_[i] * sums_[i];
      difference += (sums_[i] - recorded[i]) * (sums_[i] - recorded[i]);
    }
    const double rounding = std::sqrt(squares_ / 12);
    constexpr double kMost = 10;  // times what is expected: more is no rounding of these terms
    const double measured = std::sqrt(difference) / epsilon;
    if (!(square > 0) || !(measured <= kMost * rounding)) return std::nullopt;
    const bool is_few = std::ssize(sums_) <= kFewElements;
    return (is_few ? std::max(measured, rounding) : measured) / std::sqrt(square);
  }

 private:
  Values sums_;
  bool is_last_;
  double squares_ = 0;  // of all sums on the way
};

// Returns the rounding of a bias's gradient, in units of epsilon, as its recorded terms make it; absent where they were
// not recorded whole or are not what was added up. One backward may be that of several forwards, as of what is real and
// what is made: then the terms of micro-batches that follow, and have no gradient of their own, belong to it.
std::optional<double> rounding_by_terms(const Alignment& alignment, const LogicalTensor& gradient,
                                        const std::string& module) {
  const double epsilon = summing_epsilon(epsilon_of(gradient.dtype));
  const Values recorded = values_of(gradient);
  BiasTerms of_last(gradient.shape, true), of_second(gradient.shape, false);  // which of them the sums tell
  const auto is_of_it = [&](const TensorId& id) {
    return id.microbatch == gradient.id.microbatch || find_tensor(alignment, id) == nullptr;
  };
  for (TensorId id = gradient.id; is_of_it(id); ++id.microbatch) {
    const auto gradients_of_outputs = calls_of(alignment, id, Kind::kGradOutput, module);
    if (gradients_of_outputs.empty()) return std::nullopt;
    for (const LogicalTensor* of_output : gradients_of_outputs) {
      if (!is_recorded(*of_output)) return std::nullopt;
      of_last.add(*of_output);
      of_second.add(*of_output);
    }
    if (const auto rounding = of_last.rounding(recorded, epsilon)) return rounding;
    if (const auto rounding = of_second.rounding(recorded, epsilon)) return rounding;
  }
  return std::nullopt;
}

// The name of the direction beside a magnitude of weight normalisation (Salimans and Kingma, arXiv 1602.07868), of either
// of PyTorch's forms; empty for other parameters.
std::string direction_beside(const std::string& magnitude) {
  for (const auto& [of_magnitude, of_direction] :
       {std::pair("weight_g", "weight_v"), std::pair("original0", "original1")}) {
    if (last_component(magnitude) == of_magnitude) return parameter_of(owner_of(magnitude), of_direction);
  }
  return "";
}

// Of w = g v / |v|, row by row, the gradient of the magnitude g is that of w along v, which may be a small part of it:
// in HiFi-GAN's discriminators 0.0042. Returns how many times larger that part would be of a gradient of random
// direction: the rounding of w's gradient has one. Its square is that along v and that across, of v's gradient. 1 where
// the trace does not say.
double share_of_magnitude(const Alignment& alignment, const LogicalTensor& gradient) {
  TensorId id = gradient.id;
  id.name = direction_beside(gradient.id.name);
  if (id.name.empty()) return 1;
  const LogicalTensor* of_direction = find_tensor(alignment, id);
  const LogicalTensor* magnitude = parameter_at(alignment, gradient.id, gradient.id.name);
  const LogicalTensor* direction = parameter_at(alignment, gradient.id, id.name);
  for (const LogicalTensor* tensor : {of_direction, magnitude, direction, &gradient}) {
    if (tensor == nullptr || !is_recorded(*tensor) || !is_floating(tensor->dtype)) return 1;
  }
  const Values along = values_of(gradient), across = values_of(*of_direction), g = values_of(*magnitude),
               v = values_of(*direction);
  if (along.empty() || g.size() != along.size() || v.size() != across.size() || v.size() % g.size() != 0) return 1;
  const std::size_t width = v.size() / g.size();
  double of_weight = 0, of_magnitude = 0;
  for (std::size_t row = 0; row < g.size(); ++row) {
    double length = 0, square = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      length += v[i] * v[i];
      square += across[i] * across[i];
    }
    of_magnitude += along[row] * along[row];
    of_weight += along[row] * along[row] + (g[row] == 0 ? 0 : square * length / (g[row] * g[row]));
  }
  if (of_magnitude == 0) return 1;
  return std::max(1.0, std::sqrt(of_weight / of_magnitude / static_cast<double>(width)));
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
  const double of_all = std::sqrt(static_cast<double>(terms)), epsilon = summing_epsilon(epsilon_of(gradient.dtype));
  const auto elements = static_cast<double>(element_count(shape));
  const bool is_few = elements <= kFewElements;
  double rounding = of_all / 6;
  if (last_component(gradient.id.name) == "bias" && is_recorded(gradient)) {
    // Where hardly anything is left of many, as before a norm, it is rounding and nothing else.
    const double told = rounding_by_terms(alignment, gradient, module).value_or(0);
    rounding = std::max(rounding, is_few ? told : std::min(told, of_all));
  }
  const double most = is_few ? kMostOfRemainder : epsilon * of_all;
  const double norm =
      std::max(epsilon * rounding, std::min(epsilon * rounding * share_of_magnitude(alignment, gradient), most));
  // Errors of elements are of either sign; of so many the largest has five times the root mean square with a
  // probability of one in a million, and so has their mean.
  constexpr double kLargest = 5;
  return OwnRounding{norm, std::min(norm, kLargest * norm / std::sqrt(elements)), kLargest * norm};
}

}  // namespace ttrace
