#include "diagnose/log_probs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/tensor_name.h"
#include "merge/values.h"

namespace ttrace {
namespace {

bool is_named_so(const TensorId& id) {
  if (id.kind != Kind::kOutput && id.kind != Kind::kScalar) return false;
  const TensorName name(id.name);
  std::string word(name.member.empty() ? last_component(name.path) : name.member);
  std::erase(word, '_');
  return word.find("logprob") != word.npos;
}

struct Divergence {
  std::int64_t count = 0, clipped = 0;
  double largest = 0, sum = 0, k1 = 0, k2 = 0, k3 = 0;
};

// Returns nothing where some element is no logarithm of a probability.
std::optional<Divergence> measure(const Values& trainer, const Values& engine) {
  Divergence total;
  for (std::size_t i = 0; i < trainer.size(); ++i) {
    if (trainer[i] > 0 || engine[i] > 0) return std::nullopt;
    if (!std::isfinite(trainer[i]) || !std::isfinite(engine[i])) continue;
    const double log_ratio = trainer[i] - engine[i], ratio_less_one = std::expm1(log_ratio);
    ++total.count;
    total.largest = std::max(total.largest, std::fabs(log_ratio));
    total.sum += std::fabs(log_ratio);
    total.k1 -= log_ratio;
    total.k2 += log_ratio * log_ratio / 2;
    total.k3 += ratio_less_one - log_ratio;
    total.clipped += std::fabs(ratio_less_one) > kClipRange;
  }
  return total;
}

}  // namespace

std::vector<std::string> notes_of_log_probs(std::span<const TensorPair> pairs) {
  std::vector<std::string> notes;
  for (const TensorPair& pair : pairs) {
    const LogicalTensor &reference = *pair.reference, &candidate = *pair.candidate;
    if (!is_named_so(candidate.id) || !is_floating(reference.dtype) || !is_floating(candidate.dtype)) continue;
    if (reference.rows || candidate.rows || reference.sketched || candidate.sketched) continue;
    const auto total = measure(values_of(reference), values_of(candidate));
    if (!total || total->count == 0) continue;
    const auto count = static_cast<double>(total->count);
    notes.push_back(fmt::format(
        "log-probabilities {}: |difference| at most {:.3g}, mean {:.3g}; KL k1 {:.3g}, k2 {:.3g}, k3 {:.3g}; {} of {} "
        "ratios are clipped at {}",
        to_string(candidate.id), total->largest, total->sum / count, total->k1 / count, total->k2 / count,
        total->k3 / count, total->clipped, total->count, kClipRange));
  }
  return notes;
}

}  // namespace ttrace
