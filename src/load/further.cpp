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
    rank.light.erase(iteration);
    for (NotSeen& statement : rank.not_seen) statement.iterations.erase(iteration);
  }
}

// Takes out what a rank that recorded these iterations lightly would not have.
void keep_light(const std::set<std::int32_t>& iterations, RankTrace& rank) {
  std::erase_if(rank.entries, [&](const Entry& entry) {
    return iterations.contains(entry.id.iteration) && !is_light(entry.id.kind);
  });
}

std::set<std::int32_t> recorded_by(const RankTrace& rank) {
  std::set<std::int32_t> iterations;
  for (const Entry& entry : rank.entries) iterations.insert(entry.id.iteration);
  return iterations;
}

}  // namespace

void leave_out_unfinished(const FurtherIterations& further, RankTrace& rank) {
  rank.further = further.finished;
  std::set_intersection(further.light.begin(), further.light.end(), further.finished.begin(), further.finished.end(),
                        std::inserter(rank.light, rank.light.end()));
  std::set<std::int32_t> unfinished = recorded_by(rank);
  std::erase_if(unfinished, [&](std::int32_t iteration) {
    return further.asked.contains(iteration) || further.finished.contains(iteration);
  });
  leave_out(unfinished, rank);
}

void mark_those_that_lack(const std::vector<RankTrace*>& ranks) {
  std::set<std::int32_t> further;
  for (const RankTrace* rank : ranks) further.insert(rank->further.begin(), rank->further.end());
  for (RankTrace* rank : ranks) {
    const std::set<std::int32_t> recorded = recorded_by(*rank);
    rank->lacks_further = !std::includes(recorded.begin(), recorded.end(), further.begin(), further.end());
  }
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
  leave_out(uncommon, ranks);
  const std::set<std::int32_t> light = light_iterations(ranks);
  for (RankTrace* rank : ranks) keep_light(light, *rank);
  return uncommon;
}

std::set<std::int32_t> light_iterations(const std::vector<RankTrace*>& ranks) {
  std::set<std::int32_t> light;
  for (const RankTrace* rank : ranks) light.insert(rank->light.begin(), rank->light.end());
  return light;
}

void leave_out(const std::set<std::int32_t>& iterations, const std::vector<RankTrace*>& ranks) {
  for (RankTrace* rank : ranks) leave_out(iterations, *rank);
}

void keep_elements(Trace& trace, std::string_view what) {
  std::vector<RankTrace*> ranks;
  std::set<std::int32_t> sketched;
  for (RankTrace& rank : trace.ranks) {
    ranks.push_back(&rank);
    for (const Entry& entry : rank.entries) {
      if (entry.sketch && rank.light.contains(entry.id.iteration)) sketched.insert(entry.id.iteration);
    }
  }
  leave_out(sketched, ranks);
  require_elements(trace, what);
}

}  // namespace ttrace
