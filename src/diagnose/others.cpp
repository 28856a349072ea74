#include <algorithm>
#include <cmath>
#include <cstring>

#include "diagnose/hypothesis.h"
#include "ttrace/diagnose/dataflow.h"

namespace ttrace {
namespace {

// A product of so many multiplications is made for one hypothesis; beyond it, none.
constexpr double kMostMultiplications = 4e9;

bool comparable(const LogicalTensor& a, const LogicalTensor& b) {
  return a.shape == b.shape && is_floating(a.dtype) && is_small(a) && is_small(b);
}

// Both, as [rows, width] of their last dimension: the product that a linear's backward makes, [out, in].
Values weight_gradient(const Values& grad_output, std::int64_t out, const Values& input, std::int64_t in) {
  const auto rows = static_cast<std::int64_t>(input.size()) / in;
  Values result(static_cast<std::size_t>(out * in));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t o = 0; o < out; ++o) {
      const double factor = grad_output[static_cast<std::size_t>(row * out + o)];
      for (std::int64_t i = 0; i < in; ++i) {
        result[static_cast<std::size_t>(o * in + i)] += factor * input[static_cast<std::size_t>(row * in + i)];
      }
    }
  }
  return result;
}

std::string microbatch_words(const TensorId& id) {
  return id.microbatch == kNoMicrobatch ? fmt::format("iteration {}", id.iteration)
                                        : fmt::format("iteration {}, micro-batch {}", id.iteration, id.microbatch);
}

// The bits of a mantissa that a value needs, the leading one not counted.
int mantissa_bits(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  return mantissa == 0 ? 0 : 52 - __builtin_ctzll(mantissa);
}

int most_mantissa_bits(const Values& values) {
  int most = 0;
  for (const double value : values) most = std::max(most, mantissa_bits(value));
  return most;
}

}  // namespace

std::optional<Diagnosis> zero(const Finding& finding) {
  if (finding.difference->candidate_square > 0 || finding.difference->reference_square == 0) return std::nullopt;
  if (finding.id.kind == Kind::kParamDelta) {
    return Diagnosis{Cause::kNeverUpdated, 0, "the optimizer changed nothing: every element is zero"};
  }
  return Diagnosis{Cause::kZero, 0, "every element is zero"};
}

std::optional<Diagnosis> never_updated(const Suspect& suspect) {
  TensorId before = suspect.finding.id;
  if (before.kind != Kind::kParamAfter) return std::nullopt;
  before.kind = Kind::kParam;
  const auto found = suspect.evidence.candidate.tensors.find(before);
  if (found == suspect.evidence.candidate.tensors.end() || !comparable(found->second, suspect.candidate))
    return std::nullopt;
  return suspect.explained_by(Cause::kNeverUpdated, values_of(found->second),
                              "the parameter is what it was before the step");
}

std::optional<Diagnosis> stale(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  for (const Alignment* side : {&suspect.evidence.reference, &suspect.evidence.candidate}) {
    for (const auto& [other, tensor] : side->tensors) {
      const bool is_other_time = other.iteration != id.iteration || other.microbatch != id.microbatch;
      if (other.kind != id.kind || other.name != id.name || !is_other_time || !comparable(tensor, suspect.reference))
        continue;
      if (other.iteration > id.iteration) continue;
      const std::string what = fmt::format("it is the value of {}", microbatch_words(other));
      if (auto found = suspect.explained_by(Cause::kStale, values_of(tensor), what)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> other_tensor(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  const bool is_forward = id.kind == Kind::kInput || id.kind == Kind::kOutput;
  std::vector<const LogicalTensor*> tensors;  // in order of execution: the one that was first holds the value
  for (const auto& [other, tensor] : suspect.evidence.reference.tensors) {
    const bool same_time = other.iteration == id.iteration && other.microbatch == id.microbatch;
    const bool same_direction = is_forward ? other.kind == Kind::kInput || other.kind == Kind::kOutput
                                           : other.kind == Kind::kGradInput || other.kind == Kind::kGradOutput;
    if (same_time && same_direction && comparable(tensor, suspect.reference)) tensors.push_back(&tensor);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const LogicalTensor* a, const LogicalTensor* b) { return a->order < b->order; });
  for (const LogicalTensor* tensor : tensors) {
    const std::string what = fmt::format("it is the {} of {}", name_of(tensor->id.kind), printable(tensor->id.name));
    if (auto found = suspect.explained_by(Cause::kOtherTensor, values_of(*tensor), what)) return found;
  }
  return std::nullopt;
}

std::optional<Diagnosis> stale_operand(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  const Shape& shape = suspect.reference.shape;
  if (id.kind != Kind::kParamGrad || shape.size() != 2 || !id.name.ends_with(".weight")) return std::nullopt;
  const std::string module = id.name.substr(0, id.name.rfind('.'));
  const Alignment& reference = suspect.evidence.reference;
  TensorId at = id;
  at.name = module;
  at.kind = Kind::kGradOutput;
  const auto grad = reference.tensors.find(at);
  at.kind = Kind::kInput;
  const auto own = reference.tensors.find(at);
  if (grad == reference.tensors.end() || own == reference.tensors.end()) return std::nullopt;
  if (!is_small(grad->second) || !is_small(own->second)) return std::nullopt;
  const Values grad_output = values_of(grad->second);
  const std::int64_t rows = element_count(own->second.shape) / shape[1];
  const bool fits = own->second.shape.back() == shape[1] && grad->second.shape.back() == shape[0] &&
                    element_count(grad->second.shape) == rows * shape[0];
  if (!fits) return std::nullopt;
  double multiplications = 0;
  for (const auto& [other, tensor] : reference.tensors) {
    if (other.kind != Kind::kInput || other == own->first || !comparable(tensor, own->second)) continue;
    multiplications += static_cast<double>(rows) * static_cast<double>(shape[0] * shape[1]);
    if (multiplications > kMostMultiplications) return std::nullopt;
    const Values product = weight_gradient(grad_output, shape[0], values_of(tensor), shape[1]);
    const std::string what = fmt::format("it was computed with the input of {}, {}", printable(module_of(other.name)),
                                         microbatch_words(other));
    if (auto found = suspect.explained_by(Cause::kStaleOperand, product, what)) return found;
  }
  return std::nullopt;
}

std::optional<Diagnosis> coarser_precision(const Suspect& suspect) {
  const int found = most_mantissa_bits(suspect.found), expected = most_mantissa_bits(suspect.expected);
  constexpr int kBFloat16Bits = 7, kFloat16Bits = 10;
  if (expected <= kFloat16Bits || found > kFloat16Bits) return std::nullopt;
  // Rounding moves each element by half a unit at most.
  if (suspect.error > std::ldexp(1, -found)) return std::nullopt;
  return Diagnosis{Cause::kCoarserPrecision, suspect.error,
                   fmt::format("every element has {} mantissa bits or fewer ({}); the reference's have up to {}", found,
                               found <= kBFloat16Bits ? "bfloat16" : "float16", expected)};
}

}  // namespace ttrace
