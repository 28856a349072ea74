#include "workflow/resumed.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"

namespace ttrace {
namespace {

// Returns the new numbers of those that have one.
std::set<std::int32_t> renumbered(const std::set<std::int32_t>& iterations,
                                  const std::map<std::int32_t, std::int32_t>& numbers) {
  std::set<std::int32_t> found;
  for (const std::int32_t iteration : iterations) {
    if (const auto number = numbers.find(iteration); number != numbers.end()) found.insert(number->second);
  }
  return found;
}

}  // namespace

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
    for (std::set<std::int32_t>* said : {&rank.further, &rank.light}) *said = renumbered(*said, numbers);
    for (NotSeen& not_seen : rank.not_seen) not_seen.iterations = renumbered(not_seen.iterations, numbers);
  }
}

}  // namespace ttrace
