#include "judge/right_totals.h"

namespace ttrace {

RightTotals::RightTotals(const PairsById& pairs, const std::vector<Finding>& findings) : pairs_(pairs) {
  for (const Finding& finding : findings) {
    const bool is_gradient = finding.id.kind == Kind::kGradOutput || finding.id.kind == Kind::kGradInput;
    if (!is_gradient || finding.verdict != Verdict::kPass) continue;
    const auto total = total_of(finding.id);
    if (!total) continue;
    all_.insert(*total);
    if (finding.id.kind == Kind::kGradOutput) of_outputs_.insert(*total);
  }
}

bool RightTotals::contains(const TensorId& gradient) const {
  const auto total = total_of(gradient);
  return total && all_.contains(*total);
}

bool RightTotals::contains_output(const TensorId& gradient) const {
  const auto total = total_of(gradient);
  return total && of_outputs_.contains(*total);
}

std::optional<RightTotals::Bits> RightTotals::bits_of(const TensorId& id) const {
  const auto found = pairs_.find(id);
  const std::vector<Piece> pieces =
      found == pairs_.end() || id.microbatch < 0 ? std::vector<Piece>() : found->second->reference->pieces();
  if (pieces.empty() || pieces[0].entry->shape != found->second->reference->shape) return std::nullopt;
  return Bits{id.iteration, id.microbatch, found->second->reference->shape, pieces[0].entry->checksum};
}

std::optional<RightTotals::ValueAndGradient> RightTotals::total_of(const TensorId& gradient) const {
  const Kind kind = gradient.kind == Kind::kGradOutput ? Kind::kOutput : Kind::kInput;
  const auto value = bits_of(gradient.with_kind(kind)), of_it = bits_of(gradient);
  return value && of_it ? std::optional(ValueAndGradient(*value, *of_it)) : std::nullopt;
}

}  // namespace ttrace
