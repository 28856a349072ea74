// The gradient of a norm's weight or bias is a sum over all tokens. Where a program adds them up one by one in a narrow
// dtype, each sum is rounded as often as there are tokens, and in every run of the reference alike: a perturbation of
// the input hardly moves a sum that the same large terms decide. PyTorch's layer norm does so on the CPU. Of 256 tokens
// in bf16 the reference's own gradients are off by 0.024 to 0.033, the perturbed runs differ from them by 0.01, and a
// correct candidate, which adds half as many tokens on each of two ranks, by 0.036.
//
// That error cannot be had from the perturbed runs, but from the reference alone, since its trace holds the terms:
//
//   bias    sum over rows i of g_i            g the gradient of the module's output, y the output
//   weight  sum over rows i of g_i (y_i - bias) / weight
//
// computed in fp64 and compared with what was recorded. Where the two are farther apart than N roundings of random sums
// can take them, half a rounding step of each, the module computes something else, and nothing is said of it. Where the
// terms were recorded as sketches, that is what the gradient is taken to be off by.
//
// So it is with the norm of all gradients. PyTorch adds up the squares of a parameter's gradient one after the other in
// fp32, in lanes, and the norm of 524,288 normal numbers comes out 4e-6 too small in every run; a program that has q, k
// and v in one parameter, or half of each on a rank, adds up others. The trace holds what is added up, the gradients
// that the optimizer uses, and comparing runs has added up their squares in fp64.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "align/lookup.h"
#include "merge/values.h"
#include "tolerance/floors.h"
#include "ttrace/tensor_name.h"
#include "ttrace/tolerance/estimate.h"

namespace ttrace {
namespace {

// What is farther off than this share of the gradient is no rounding.
constexpr double kNoRounding = 0.25;

// A module whose parameters are vectors as wide as its output, in one micro-batch.
struct Affine {
  std::vector<const LogicalTensor*> outputs, gradients;  // of each call
  const LogicalTensor* weight = nullptr;                 // either may be null
  const LogicalTensor* bias = nullptr;
};

bool is_vector_of(const LogicalTensor* tensor, std::int64_t width) { return tensor->shape == Shape{width}; }

// True for a tensor that is no share of routed tokens, is as wide, and fits in memory in fp64.
bool is_whole(const LogicalTensor* tensor, std::int64_t width) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 28;
  return is_floating(tensor->dtype) && !tensor->rows && !tensor->shape.empty() && tensor->shape.back() == width &&
         element_count(tensor->shape) <= kMostElements;
}

// Adds up the gradients of the parameter named `last`, exactly; empty where the terms were not recorded.
Values exact_sum(const Affine& module, std::string_view last, std::int64_t width) {
  const auto size = static_cast<std::size_t>(width);
  Values sum(size), weight, bias(size);
  const bool is_bias = last == "bias";
  if (!is_bias) {
    if (module.weight == nullptr || module.outputs.size() != module.gradients.size()) return {};
    weight = values_of(*module.weight);
    if (module.bias != nullptr) bias = values_of(*module.bias);
  }
  for (std::size_t call = 0; call < module.gradients.size(); ++call) {
    const Values gradients = values_of(*module.gradients[call]);
    const Values outputs = is_bias ? Values() : values_of(*module.outputs[call]);
    if (!is_bias && outputs.size() != gradients.size()) return {};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::size_t at = i % size;
      sum[at] += is_bias ? gradients[i] : gradients[i] * (outputs[i] - bias[at]) / weight[at];
    }
  }
  return sum;
}

// What `exact` differs by from what was recorded; absent where that is no rounding.
std::optional<OwnRounding> rounding_between(const Values& recorded, const Values& exact, double most) {
  double square = 0, along = 0, differs = 0, largest = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const double error = exact[i] - recorded[i];
    square += recorded[i] * recorded[i];
    along += error * recorded[i];
    differs += error * error;
    largest = std::max(largest, std::fabs(error));
  }
  const double norm = std::sqrt(differs / square);
  if (!(norm <= most)) return std::nullopt;
  return OwnRounding{norm, std::fabs(along / square),
                     largest / std::sqrt(square / static_cast<double>(recorded.size()))};
}
bool is_sketched(const LogicalTensor* tensor) { return tensor != nullptr && tensor->sketched; }

// What sums of terms that are not known may be rounded by, `most` of their norm: of so many elements the largest has
// five times the root mean square with a probability of one in a million.
OwnRounding largest_rounding(double most) {
  constexpr double kLargest = 5;
  return OwnRounding{most, most, kLargest * most};
}

// What the gradient of a micro-batch was rounded by; absent where the trace does not say.
std::optional<OwnRounding> own_rounding(const Alignment& alignment, const LogicalTensor& gradient) {
  const std::string_view last = last_component(gradient.id.name);
  if (gradient.id.kind != Kind::kParamGrad || gradient.shape.size() != 1 || !is_floating(gradient.dtype)) return {};
  if (last != "bias" && last != "weight") return {};
  const std::int64_t width = gradient.shape[0];
  const std::string module(owner_of(gradient.id.name));
  Affine affine;
  affine.gradients = find_calls(alignment, gradient.id, Kind::kGradOutput, module);
  affine.outputs = find_calls(alignment, gradient.id, Kind::kOutput, module);
  affine.weight = parameter_at(alignment, gradient.id, parameter_of(module, "weight"));
  affine.bias = parameter_at(alignment, gradient.id, parameter_of(module, "bias"));
  // A linear's bias is added up beside a product, not one by one.
  if (affine.gradients.empty() || affine.weight == nullptr || !is_vector_of(affine.weight, width)) return {};
  if (affine.bias != nullptr && !is_vector_of(affine.bias, width)) return {};
  for (const auto* calls : {&affine.gradients, &affine.outputs}) {
    for (const LogicalTensor* tensor : *calls) {
      if (!is_whole(tensor, width)) return {};
    }
  }
  std::int64_t terms = 0;
  for (const LogicalTensor* tensor : affine.gradients)
    terms += element_count(tensor->shape) / std::max<std::int64_t>(width, 1);
  // A sum in the terms' dtype may be recorded in a wider one.
  const double step = std::max(epsilon_of(gradient.dtype), epsilon_of(affine.gradients[0]->dtype));
  const double most = std::min(step * std::sqrt(static_cast<double>(terms)) / 2, kNoRounding);
  const bool are_sketched = is_sketched(&gradient) || is_sketched(affine.weight) || is_sketched(affine.bias) ||
                            std::any_of(affine.gradients.begin(), affine.gradients.end(), is_sketched) ||
                            std::any_of(affine.outputs.begin(), affine.outputs.end(), is_sketched);
  if (are_sketched) return largest_rounding(most);
  const Values exact = exact_sum(affine, last, width);
  return exact.empty() ? std::nullopt : rounding_between(values_of(gradient), exact, most);
}

// The norm of all gradients of one iteration, as recorded and as the gradients give it.
struct GradientNorm {
  double exact_square = 0;
  GradientSizes gradients;
  std::vector<std::pair<const LogicalTensor*, double>> recorded;  // several where a program clips by parts
};

}  // namespace

OwnRoundings measure_own_norms(std::span<const TensorPair> pairs, std::span<const Difference> differences) {
  std::map<std::int32_t, GradientNorm> norms;  // by iteration
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const LogicalTensor& tensor = *pairs[i].reference;
    GradientNorm& norm = norms[tensor.id.iteration];
    if (is_gradient_norm({tensor.id.kind, tensor.id.name}))
      norm.recorded.emplace_back(&tensor, std::sqrt(differences[i].reference_square));
    if (tensor.id.kind != Kind::kMainGrad) continue;
    norm.exact_square += differences[i].reference_square;
    norm.gradients.add(element_count(tensor.shape));
  }
  OwnRoundings all;
  for (const auto& [iteration, norm] : norms) {
    for (const auto& [tensor, recorded] : norm.recorded) {
      const double off = std::fabs(std::sqrt(norm.exact_square) - recorded) / recorded;
      if (!(off <= norm.gradients.rounding_of_norm(tensor->dtype))) continue;
      OwnRounding& largest = all[{Kind::kScalar, tensor->id.name}];
      if (off > largest.norm) largest = {off, off, off};
    }
  }
  return all;
}

OwnRoundings measure_own_sums(const Alignment& reference) {
  OwnRoundings all;
  for (const auto& [id, tensor] : reference.tensors) {
    const std::optional<OwnRounding> own = own_rounding(reference, tensor);
    if (!own) continue;
    // The optimizer's gradient is their sum, and its step may be a multiple of that.
    for (const Kind kind : {Kind::kParamGrad, Kind::kMainGrad, Kind::kParamDelta}) {
      OwnRounding& largest = all[{kind, id.name}];
      largest.norm = std::max(largest.norm, own->norm);
      largest.scale = std::max(largest.scale, own->scale);
      largest.element = std::max(largest.element, own->element);
    }
  }
  return all;
}

}  // namespace ttrace
