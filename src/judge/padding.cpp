#include "judge/padding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/count_of.h"
#include "base/describe.h"
#include "base/lookup.h"

namespace ttrace {

void set_ends_of_padding_aside(const std::map<MicrobatchKey, std::set<std::int32_t>>& padded_shorter,
                               const Alignment& reference, std::vector<Finding>& findings,
                               std::vector<std::string>& notes) {
  std::int64_t count = 0;
  std::string first;
  for (Finding& finding : findings) {
    const auto shorter = padded_shorter.find({finding.id.iteration, finding.id.microbatch});
    if (finding.id.kind != Kind::kOutput || finding.reason != Reason::kExceedsTolerance || finding.ranks.empty() ||
        shorter == padded_shorter.end()) {
      continue;
    }
    const bool is_theirs =
        std::ranges::all_of(finding.ranks, [&](std::int32_t rank) { return shorter->second.contains(rank); });
    const bool is_taken = find_tensor(reference, finding.id.with_kind(Kind::kGradOutput)) != nullptr;
    if (!is_theirs || is_taken || !has_any_of_call(reference, finding.id, Kind::kGradOutput)) continue;
    if (count++ == 0) first = to_string(finding.id);
    finding.verdict = Verdict::kUntrusted;
    finding.reason = Reason::kNotCheckable;
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} of modules that read padded samples to their end, the first {}: ranks that pad to the longest of "
      "their own samples end before the reference; no gradient comes back to what is handed over there, and "
      "it was not compared",
      count_of(count, "output"), first));
}

}  // namespace ttrace
