#include "workflow/resumed.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"

namespace ttrace {

void renumber_iterations(Trace& candidate, const std::set<std::int32_t>& iterations,
                         const std::set<std::int32_t>& of_reference) {
  if (iterations.size() != of_reference.size()) {
    throw InputError(fmt::format("--candidate-iterations: {} of them, and {} of the reference; expected as many",
                                 iterations.size(), of_reference.size()));
  }
  std::map<std::int32_t, std::int32_t> numbers;
  for (auto mine = iterations.begin(), other = of_reference.begin(); mine != iterations.end(); ++mine, ++other) {
    numbers.emplace(*mine, *other);
  }
  for (RankTrace& rank : candidate.ranks) {
    std::erase_if(rank.entries, [&](const Entry& entry) { return !numbers.contains(entry.id.iteration); });
    for (Entry& entry : rank.entries) entry.id.iteration = numbers.at(entry.id.iteration);
    std::erase_if(rank.optimizer_steps, [&](const OptimizerStep& step) { return !numbers.contains(step.iteration); });
    for (OptimizerStep& step : rank.optimizer_steps) step.iteration = numbers.at(step.iteration);
    for (NotSeen& not_seen : rank.not_seen) {
      std::set<std::int32_t> renumbered;
      for (const std::int32_t iteration : not_seen.iterations) {
        if (const auto found = numbers.find(iteration); found != numbers.end()) renumbered.insert(found->second);
      }
      not_seen.iterations = std::move(renumbered);
    }
  }
}

}  // namespace ttrace
