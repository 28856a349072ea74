#include "base/alignment.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "base/tensor_name.h"

namespace ttrace {

bool is_not_seen(const Alignment& alignment, const Finding& finding) {
  return finding.verdict == Verdict::kMissing && !finding.id.name.empty() &&
         alignment.not_seen.reason_of(finding.id) != nullptr;
}

ModelLayout layout_of(const Alignment& reference) {
  ModelLayout layout;
  layout.reference = &reference;
  // A large trace has many tensors of one name and kind, of which the first counts.
  std::array<std::unordered_set<std::string_view>, kKindLast + 1> known;
  for (const auto& [id, tensor] : reference.tensors) {
    std::int64_t& microbatches = layout.microbatches[id.iteration];
    microbatches = std::max(microbatches, std::int64_t{id.microbatch} + 1);
    if (!known[static_cast<std::size_t>(id.kind)].insert(id.name).second) continue;
    layout.shapes.emplace(std::pair(id.name, id.kind), tensor.shape);
    for (auto number = number_in(id.name); number; number = number_in(id.name, number->end)) {
      std::int64_t& count = layout.layer_counts[std::string(number->prefix)];
      count = std::max(count, number->value + 1);
    }
  }
  return layout;
}

}  // namespace ttrace
