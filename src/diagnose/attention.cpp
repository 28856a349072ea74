// Recomputes scaled dot-product attention from the recorded tensors of a call, to see what a misread gradient makes.
// With queries, keys and values Q, K, V [s, heads, d] of one sample, per head:
//
//   P = softmax(Q K^T / sqrt(d)), causal or not      O = P V
//   dV = P^T dO      dS = P * (dO V^T - rowsum(dO * O))      dQ = dS K / sqrt(d)      dK = dS^T Q / sqrt(d)
//
// (Dao et al., "FlashAttention", appendix B). A module counts as such an attention if the formulas give the reference's
// own output and gradient.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// Queries and output [s, b, heads, d], keys and values [t, b, kv_heads, d]; a kv head serves heads / kv_heads of them.
struct Attention {
  std::int64_t s = 0, t = 0, b = 0, heads = 0, kv_heads = 0, d = 0;
  Values query, key, value;
  bool causal = true;

  double multiplications() const { return 5.0 * static_cast<double>(s * t) * static_cast<double>(b * heads * d); }
  std::size_t query_offset(std::int64_t i, std::int64_t sample, std::int64_t head) const {
    return static_cast<std::size_t>(((i * b + sample) * heads + head) * d);
  }
  std::size_t key_offset(std::int64_t j, std::int64_t sample, std::int64_t head) const {
    return static_cast<std::size_t>(((j * b + sample) * kv_heads + head * kv_heads / heads) * d);
  }
};

struct Gradients {
  Values output, query, key, value;
};

// Both functions work on `count` values of each array, from `at` of the first and from `other` of the second on.
double dot(const Values& x, std::size_t at, const Values& y, std::size_t other, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    sum += x[at + static_cast<std::size_t>(i)] * y[other + static_cast<std::size_t>(i)];
  }
  return sum;
}

void add_multiple(Values& to, std::size_t at, double factor, const Values& from, std::size_t other,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[at + static_cast<std::size_t>(i)] += factor * from[other + static_cast<std::size_t>(i)];
  }
}

// Adds to `result` the output and the gradients that query `i` of one head contributes.
void add_query(const Attention& attention, const Values& grad, std::int64_t i, std::int64_t sample, std::int64_t head,
               Gradients& result) {
  const std::size_t q = attention.query_offset(i, sample, head);
  const std::int64_t keys = attention.causal ? std::min(i + 1, attention.t) : attention.t;
  const double scale = 1 / std::sqrt(static_cast<double>(attention.d));
  Values weights(static_cast<std::size_t>(keys));
  double largest = -HUGE_VAL, total = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    double& weight = weights[static_cast<std::size_t>(j)];
    weight = scale * dot(attention.query, q, attention.key, attention.key_offset(j, sample, head), attention.d);
    largest = std::max(largest, weight);
  }
  for (double& weight : weights) total += weight = std::exp(weight - largest);
  for (std::int64_t j = 0; j < keys; ++j) {
    double& weight = weights[static_cast<std::size_t>(j)];
    weight /= total;
    add_multiple(result.output, q, weight, attention.value, attention.key_offset(j, sample, head), attention.d);
  }
  const double along_output = dot(grad, q, result.output, q, attention.d);
  for (std::int64_t j = 0; j < keys; ++j) {
    const std::size_t k = attention.key_offset(j, sample, head);
    const double weight = weights[static_cast<std::size_t>(j)];
    const double grad_score = scale * weight * (dot(grad, q, attention.value, k, attention.d) - along_output);
    add_multiple(result.query, q, grad_score, attention.key, k, attention.d);
    add_multiple(result.key, k, grad_score, attention.query, q, attention.d);
    add_multiple(result.value, k, weight, grad, q, attention.d);
  }
}

Gradients compute_gradients(const Attention& attention, const Values& grad_output) {
  Gradients result{Values(attention.query.size()), Values(attention.query.size()), Values(attention.key.size()),
                   Values(attention.value.size())};
  for (std::int64_t sample = 0; sample < attention.b; ++sample) {
    for (std::int64_t head = 0; head < attention.heads; ++head) {
      for (std::int64_t i = 0; i < attention.s; ++i) add_query(attention, grad_output, i, sample, head, result);
    }
  }
  return result;
}

const LogicalTensor* find_small(const Alignment& alignment, const TensorId& id, Kind kind, const std::string& name) {
  const LogicalTensor* found = find_tensor(alignment, id, kind, name);
  return found == nullptr || !is_small(*found) ? nullptr : found;
}

std::optional<Attention> make_attention(const LogicalTensor& query, const LogicalTensor& key,
                                        const LogicalTensor& value) {
  const Shape &q = query.shape, &k = key.shape;
  if (q.size() != 4 || k.size() != 4 || value.shape != k || q[1] != k[1] || q[3] != k[3]) return std::nullopt;
  if (k[2] == 0 || q[2] % k[2] != 0) return std::nullopt;
  return Attention{q[0], k[0], q[1], q[2], k[2], q[3], values_of(query), values_of(key), values_of(value)};
}

constexpr std::array<std::string_view, 3> kOperands = {":0", ":1", ":2"};  // query, key, value

const Values& operand_gradient(const Gradients& gradients, std::size_t operand) {
  return operand == 0 ? gradients.query : operand == 1 ? gradients.key : gradients.value;
}

}  // namespace

std::optional<Diagnosis> reinterpreted_in_attention(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  const TensorName name(id.name);
  const auto member =
      static_cast<std::size_t>(std::find(kOperands.begin(), kOperands.end(), name.member) - kOperands.begin());
  if (id.kind != Kind::kGradInput || member == kOperands.size()) return std::nullopt;
  const Alignment& reference = suspect.evidence.reference;
  std::array<const LogicalTensor*, kOperands.size()> operands{};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    operands[i] = find_small(reference, id, Kind::kInput, name.with_member(kOperands[i]));
    if (operands[i] == nullptr) return std::nullopt;
  }
  const std::string module = name.without_member();
  const LogicalTensor* output = find_small(reference, id, Kind::kOutput, module);
  const LogicalTensor* grad = find_small(reference, id, Kind::kGradOutput, module);
  const LogicalTensor* candidate_grad = find_small(suspect.evidence.candidate, id, Kind::kGradOutput, module);
  std::optional<Attention> attention = make_attention(*operands[0], *operands[1], *operands[2]);
  if (!attention || output == nullptr || grad == nullptr || candidate_grad == nullptr) return std::nullopt;
  const std::int64_t elements = element_count(operands[0]->shape);
  if (element_count(output->shape) != elements || grad->shape != output->shape ||
      candidate_grad->shape != output->shape)
    return std::nullopt;
  const Values grad_values = values_of(*grad), output_values = values_of(*output);
  double multiplications = 0;
  for (const bool causal : {true, false}) {
    attention->causal = causal;
    const Gradients gradients = compute_gradients(*attention, grad_values);
    multiplications += attention->multiplications();
    const bool is_attention =
        relative_distance(gradients.output, output_values) <= suspect.bound &&
        relative_distance(operand_gradient(gradients, member), suspect.reference_values) <= suspect.bound;
    if (!is_attention) continue;
    return try_readings(
        grad_values, grad->shape, local_tensors_of(*candidate_grad),
        [&](const Values& values, const std::string& how) -> std::optional<Diagnosis> {
          multiplications += attention->multiplications();
          if (multiplications > kMostMultiplications) return std::nullopt;
          return suspect.explained_by(
              Cause::kReinterpreted, operand_gradient(compute_gradients(*attention, values), member),
              fmt::format("it is what the attention makes of its output's gradient when that is read {}", how));
        });
  }
  return std::nullopt;
}

}  // namespace ttrace
