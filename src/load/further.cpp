#include "load/further.h"

#include <algorithm>
#include <iterator>

namespace ttrace {
namespace {

void leave_out(const std::set<std::int32_t>& iterations, RankTrace& rank) {
  std::erase_if(rank.entries, [&](const Entry& entry) { return iterations.contains(entry.id.iteration); });
  std::erase_if(rank.optimizer_steps, [&](const OptimizerStep& step) { return iterations.contains(step.iteration); });
  for (const std::int32_t iteration : iterations) {
    rank.further.erase(iteration);
    for (NotSeen& statement : rank.not_seen) statement.iterations.erase(iteration);
  }
}

std::set<std::int32_t> recorded_by(const RankTrace& rank) {
  std::set<std::int32_t> iterations;
  for (const Entry& entry : rank.entries) iterations.insert(entry.id.iteration);
  return iterations;
}

}  // namespace

void leave_out_unfinished(const FurtherIterations& further, RankTrace& rank) {
  rank.further = further.finished;
  std::set<std::int32_t> unfinished = recorded_by(rank);
  std::erase_if(unfinished, [&](std::int32_t iteration) {
    return further.asked.contains(iteration) || further.finished.contains(iteration);
  });
  leave_out(unfinished, rank);
}

std::set<std::int32_t> leave_out_uncommon(const std::vector<RankTrace*>& ranks) {
  std::set<std::int32_t> further;
  for (const RankTrace* rank : ranks) further.insert(rank->further.begin(), rank->further.end());
  if (further.empty()) return {};
  std::set<std::int32_t> uncommon;
  for (const RankTrace* rank : ranks) {
    const std::set<std::int32_t> recorded = recorded_by(*rank);
    if (recorded.empty()) continue;
    std::set_difference(further.begin(), further.end(), recorded.begin(), recorded.end(),
                        std::inserter(uncommon, uncommon.end()));
  }
  if (uncommon.empty()) return {};
  for (RankTrace* rank : ranks) leave_out(uncommon, *rank);
  return uncommon;
}

}  // namespace ttrace
