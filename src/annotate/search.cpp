#include "annotate/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "align/shard_mapping.h"
#include "annotate/decision.h"
#include "base/error.h"
#include "judge/match.h"

namespace ttrace {
namespace {

// The number of a search's tensors that are compared: enough to see more than one layer and micro-batch. The shapes of
// all are checked.
constexpr std::size_t kCompared = 4;

// The hypothesis of a search that the present round tries.
struct ActiveHypothesis {
  Search* search;
  std::size_t hypothesis;
};

// Makes a glob that matches the same names. A pattern without wildcards would win over longer ones that have some.
std::string with_wildcard(const std::string& pattern) {
  if (pattern.find('*') != pattern.npos) return pattern;
  return fmt::format("[{}]{}", pattern.substr(0, 1), pattern.substr(1));
}

Annotations with_hypotheses(const Annotations& settings, std::span<const Search> searches,
                            const std::vector<ActiveHypothesis>& active) {
  Annotations annotations = settings;
  for (const Search& search : searches) {
    AnnotationRule rule{with_wildcard(search.pattern), search.kind, {}, {}};
    if (!search.hypotheses.empty()) rule.axes = search.hypotheses[0].axes;
    for (const ActiveHypothesis& one : active) {
      if (one.search == &search) rule.axes = search.hypotheses[one.hypothesis].axes;
    }
    annotations.rules.push_back(std::move(rule));
  }
  return annotations;
}

// Returns `kCompared` of the pairs, evenly spread.
std::vector<TensorPair> sample_evenly(const std::vector<TensorPair>& pairs) {
  if (pairs.size() <= kCompared) return pairs;
  std::vector<TensorPair> some;
  for (std::size_t i = 0; i < kCompared; ++i) some.push_back(pairs[i * (pairs.size() - 1) / (kCompared - 1)]);
  return some;
}

void measure(const Trial& trial, const Alignment& alignment, const std::vector<ActiveHypothesis>& active) {
  std::map<SubjectKey, std::pair<Fit*, std::vector<TensorPair>>> measured;
  for (const auto& [search, hypothesis] : active) {
    measured[{search->pattern, search->kind}].first = &search->hypotheses[hypothesis].fit;
  }
  for (const Finding& finding : alignment.findings) {
    const auto found = measured.find({pattern_of(finding.id.name), finding.id.kind});
    if (found != measured.end()) ++found->second.first->misfits;
  }
  for (const auto& [id, tensor] : alignment.tensors) {
    const auto found = measured.find({pattern_of(id.name), id.kind});
    if (found == measured.end()) continue;
    const LogicalTensor* reference = counterpart(trial.reference, id);
    if (reference == nullptr || reference->shape != tensor.shape ||
        is_floating(reference->dtype) != is_floating(tensor.dtype)) {
      ++found->second.first->misfits;
    } else {
      found->second.second.push_back({reference, &tensor});
    }
  }
  std::vector<TensorPair> pairs;
  std::vector<Fit*> fits;
  for (auto& [key, item] : measured) {
    item.first->held += static_cast<std::int64_t>(item.second.size());
    for (const TensorPair& pair : sample_evenly(item.second)) {
      pairs.push_back(pair);
      fits.push_back(item.first);
    }
  }
  const std::vector<Difference> differences = compare(pairs, {});
  for (std::size_t i = 0; i < pairs.size(); ++i) fits[i]->add(differences[i]);
}

// Aligns the trace by the active hypotheses and measures them. A layout may refuse the sizes that it is given: then the
// round is tried in halves, down to the one hypothesis that is refused.
void try_round(const Trial& trial, std::span<const Search> searches, const std::vector<ActiveHypothesis>& active) {
  if (active.empty()) return;
  Alignment alignment;
  try {
    alignment = align(trial.trace, with_hypotheses(trial.settings, searches, active), layout_of(trial.reference));
  } catch (const InputError&) {
    if (active.size() == 1) {
      active[0].search->hypotheses[active[0].hypothesis].fit.misfits = std::numeric_limits<std::int64_t>::max();
      return;
    }
    const auto middle = active.begin() + static_cast<std::ptrdiff_t>(active.size() / 2);
    try_round(trial, searches, {active.begin(), middle});
    try_round(trial, searches, {middle, active.end()});
    return;
  }
  measure(trial, alignment, active);
}

double relative_to(double reference_square, double square) {
  if (square == 0) return 0;
  return reference_square == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(square / reference_square);
}

}  // namespace

void Fit::add(const Difference& measured) {
  near += is_near(measured.rel_err()) ? 1 : 0;
  ++tensors;
  reference += measured.reference_square;
  difference += std::max(measured.difference_square, measured.replica_square);
  replicas += measured.replica_square;
  if (measured.nonfinite_mismatch > 0) difference = std::numeric_limits<double>::infinity();
}

double Fit::error() const { return relative_to(reference, difference); }

double Fit::disagreement() const { return relative_to(reference, replicas); }

void try_hypotheses(const Trial& trial, std::span<Search> searches, const std::vector<Kind>& kinds) {
  std::size_t rounds = 0;
  const auto is_wanted = [&](Kind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
  for (const Search& search : searches) {
    if (is_wanted(search.kind)) rounds = std::max(rounds, search.hypotheses.size());
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<ActiveHypothesis> active;
    for (Search& search : searches) {
      if (is_wanted(search.kind) && round < search.hypotheses.size()) active.push_back({&search, round});
    }
    try_round(trial, searches, active);
  }
}

}  // namespace ttrace
