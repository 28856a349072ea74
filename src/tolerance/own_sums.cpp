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
// can take them, half a rounding step of each, the sum may have grown so large that most terms are lost in it: of 1,024
// tokens in bf16 such gradients are off by 0.3. Then the same rows, each sum rounded on the way, give what was
// recorded, which a candidate rounds elsewhere: N roundings are what it may be off by. If they do not, the module
// computes something else, and nothing is said of it. Where the terms were recorded as sketches, N roundings are taken
// in any case.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "merge/values.h"
#include "numeric/convert.h"
#include "tolerance/estimate.h"
#include "tolerance/floors.h"
#include "tolerance/long_sums.h"
#include "tolerance/remainder.h"

namespace ttrace {
namespace {

// An error that is larger than this share of the gradient is no rounding.
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

struct Sums {
  Values exact;    // empty where the terms were not recorded
  Values rounded;  // once a row
};

// Adds up the gradients of the parameter named `last`, row by row.
Sums add_up(const Affine& module, std::string_view last, std::int64_t width, Dtype dtype) {
  const auto size = static_cast<std::size_t>(width);
  Sums sums{Values(size), Values(size)};
  Values weight, bias(size);
  std::vector<std::byte> row(size * static_cast<std::size_t>(size_of(dtype)));
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
      const double term = is_bias ? gradients[i] : gradients[i] * (outputs[i] - bias[at]) / weight[at];
      sums.exact[at] += term;
      sums.rounded[at] += term;
      if (at + 1 < size) continue;
      narrow(sums.rounded.data(), dtype, width, row.data());
      widen(row.data(), dtype, width, sums.rounded.data());
    }
  }
  return sums;
}

// Returns what `exact` differs by from what was recorded; absent where that is no rounding.
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

// Returns what sums of terms that are not known may be rounded by, `most` of their norm: of so many elements the
// largest has five times the root mean square with a probability of one in a million.
OwnRounding largest_rounding(double most) {
  constexpr double kLargest = 5;
  return OwnRounding{most, most, kLargest * most};
}

// Returns what the gradient of a micro-batch was rounded by; absent where the trace does not say.
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
  const Dtype of_terms = affine.gradients[0]->dtype;
  const Dtype narrow_dtype = epsilon_of(gradient.dtype) > epsilon_of(of_terms) ? gradient.dtype : of_terms;
  const double step = epsilon_of(narrow_dtype);
  const double most = std::min(step * std::sqrt(static_cast<double>(terms)) / 2, kNoRounding);
  const bool are_sketched = is_sketched(&gradient) || is_sketched(affine.weight) || is_sketched(affine.bias) ||
                            std::any_of(affine.gradients.begin(), affine.gradients.end(), is_sketched) ||
                            std::any_of(affine.outputs.begin(), affine.outputs.end(), is_sketched);
  if (are_sketched) return largest_rounding(most);
  const Sums sums = add_up(affine, last, width, narrow_dtype);
  if (sums.exact.empty()) return {};
  const Values recorded = values_of(gradient);
  if (const auto own = rounding_between(recorded, sums.exact, most)) return own;
  return rounding_between(recorded, sums.rounded, most) ? std::optional(largest_rounding(most)) : std::nullopt;
}

void widen_to(OwnRounding& largest, const OwnRounding& own, double factor) {
  largest.norm = std::max(largest.norm, factor * own.norm);
  largest.scale = std::max(largest.scale, factor * own.scale);
  largest.element = std::max(largest.element, factor * own.element);
}

std::optional<OwnRounding> largest_of(std::optional<OwnRounding> one, const std::optional<OwnRounding>& other) {
  if (one && other) widen_to(*one, *other, 1);
  return one ? one : other;
}

// The norm of what the step changes of the parameter, or of the parameter after it; 0 where it was not recorded whole.
double norm_of(const Alignment& alignment, const TensorId& gradient, Kind kind) {
  TensorId id = gradient.with_kind(kind);
  id.microbatch = kNoMicrobatch;
  const auto found = alignment.tensors.find(id);
  if (found == alignment.tensors.end() || found->second.sketched) return 0;
  double square = 0;
  for (const double value : values_of(found->second)) square += value * value;
  return std::sqrt(square);
}

// What few sums were off by is a matter of luck, and what others were cannot be had from the trace: these may be off by
// what adding up one by one leaves.
std::optional<OwnRounding> rounding_of_sum(const Alignment& reference, const LogicalTensor& gradient) {
  std::optional<OwnRounding> own = own_rounding(reference, gradient);
  if (own && element_count(gradient.shape) > kFewElements) return own;
  return largest_of(own, rounding_one_by_one(reference, gradient));
}

}  // namespace

OwnRoundings measure_own_sums(const Alignment& reference, const std::function<bool(const std::string&)>& wanted) {
  OwnRoundings all = roundings_of_crossing(reference);
  if (wanted) std::erase_if(all, [&](const auto& one) { return !wanted(one.first.second); });
  for (const auto& [id, tensor] : reference.tensors) {
    if (wanted && !wanted(id.name.get())) continue;
    const std::optional<OwnRounding> own =
        largest_of(rounding_of_sum(reference, tensor), rounding_of_remainder(tensor));
    if (!own) continue;
    if (id.kind != Kind::kParamGrad && id.kind != Kind::kMainGrad) {
      widen_to(all[{id.kind, id.name}], *own, 1);
      continue;
    }
    // The optimizer's gradient is their sum, and its step may be a multiple of that.
    for (const Kind kind : {Kind::kParamGrad, Kind::kMainGrad, Kind::kParamDelta}) {
      widen_to(all[{kind, id.name}], *own, 1);
    }
    // The parameter changes by that share of its step.
    if (const double after = norm_of(reference, id, Kind::kParamAfter); after > 0) {
      widen_to(all[{Kind::kParamAfter, id.name}], *own, norm_of(reference, id, Kind::kParamDelta) / after);
    }
  }
  return all;
}

}  // namespace ttrace
