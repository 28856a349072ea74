#include "align/group_finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "align/fragment.h"
#include "base/describe.h"

namespace ttrace {

Finding finding_of(const Group& group, Verdict verdict, Reason reason, const std::string& what,
                   std::vector<std::int32_t> ranks) {
  Finding finding;
  finding.id = group.id;
  finding.verdict = verdict;
  finding.reason = reason;
  finding.message = fmt::format("{}: {}", to_string(group.id), what);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (!ranks.empty() && ranks.front() < 0) ranks.erase(ranks.begin());
  finding.ranks = std::move(ranks);
  finding.order = group.shards[0].entry->order;
  for (const Shard& shard : group.shards) finding.order = std::min(finding.order, shard.entry->order);
  return finding;
}

Finding disagreement(const Group& group, std::string_view rule,
                     const std::function<std::string(const Entry&)>& describe) {
  std::map<std::string, std::vector<std::int32_t>> ranks_by_text;
  std::vector<std::int32_t> ranks;
  for (const Shard& shard : group.shards) {
    ranks_by_text[describe(*shard.entry)].push_back(shard.holder->trace->rank);
    ranks.push_back(shard.holder->trace->rank);
  }
  std::vector<std::string> items;
  for (const auto& [text, holders] : ranks_by_text) {
    items.push_back(fmt::format("{} on {}", text, describe_ranks(holders)));
  }
  return finding_of(group, Verdict::kFail, Reason::kShapeMismatch, fmt::format("{}: {}", rule, fmt::join(items, "; ")),
                    ranks);
}

std::string own_shape_text(const Entry& entry) { return to_string(own_shape(entry)); }

}  // namespace ttrace
