#include "judge/right_elsewhere.h"

#include <optional>
#include <string>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

TensorId of_any_microbatch(TensorId id) {
  id.iteration = 0;
  id.microbatch = 0;
  return id;
}

// Nothing for names that are numbers alone, as of the parts of a sequence, which need have nothing in common.
std::optional<TensorId> of_any_layer(TensorId id) {
  if (components_of(id.name.get()).size() < 2) return std::nullopt;
  const std::string pattern = with_any_number(id.name.get());
  if (pattern == id.name.get() || pattern.find_first_not_of("*.:#") == std::string::npos) return std::nullopt;
  id.name = pattern;
  return id;
}

}  // namespace

RightElsewhere::RightElsewhere(std::span<const Finding> findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kPass && finding.difference) right_.insert(of_any_microbatch(finding.id));
  }
}

bool RightElsewhere::contains(const TensorId& id) const { return right_.contains(of_any_microbatch(id)); }

RightInLayers::RightInLayers(std::span<const Finding> findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict != Verdict::kPass || !finding.difference) continue;
    if (const auto layers = of_any_layer(finding.id)) right_[*layers].push_back(finding.id);
  }
}

std::span<const TensorId> RightInLayers::others(const TensorId& id) const {
  const auto layers = of_any_layer(id);
  const auto found = layers ? right_.find(*layers) : right_.end();
  return found == right_.end() ? std::span<const TensorId>() : found->second;
}

}  // namespace ttrace
