#include "annotate/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ttrace/error.h"
#include "ttrace/judge/match.h"

namespace ttrace {
namespace {

// Of one search's tensors, enough to see more than one layer and micro-batch; all have their shapes looked at.
constexpr std::size_t kCompared = 4;

struct Active {
  Search* search;
  std::size_t hypothesis;
};

// Of two patterns that fit a name the longer must win, whatever the other's wildcards.
std::string with_wildcard(const std::string& pattern) {
  if (pattern.find('*') != pattern.npos) return pattern;
  return fmt::format("[{}]{}", pattern.substr(0, 1), pattern.substr(1));
}

Annotations with_hypotheses(const Annotations& settings, std::span<const Search> all,
                            const std::vector<Active>& active) {
  Annotations annotations = settings;
  for (const Search& search : all) {
    AnnotationRule rule{with_wildcard(search.pattern), search.kind, {}, {}};
    if (!search.hypotheses.empty()) rule.axes = search.hypotheses[0].axes;
    for (const Active& one : active) {
      if (one.search == &search) rule.axes = search.hypotheses[one.hypothesis].axes;
    }
    annotations.rules.push_back(std::move(rule));
  }
  return annotations;
}

// `kCompared` of them, evenly spread.
std::vector<TensorPair> thin_out(const std::vector<TensorPair>& pairs) {
  if (pairs.size() <= kCompared) return pairs;
  std::vector<TensorPair> some;
  for (std::size_t i = 0; i < kCompared; ++i) some.push_back(pairs[i * (pairs.size() - 1) / (kCompared - 1)]);
  return some;
}

void measure(const Trial& trial, const Alignment& alignment, const std::vector<Active>& active) {
  std::map<SubjectKey, std::pair<Fit*, std::vector<TensorPair>>> open;
  for (const auto& [search, hypothesis] : active) {
    open[{search->pattern, search->kind}].first = &search->hypotheses[hypothesis].fit;
  }
  for (const Finding& finding : alignment.findings) {
    const auto found = open.find({pattern_of(finding.id.name), finding.id.kind});
    if (found != open.end()) ++found->second.first->misfits;
  }
  for (const auto& [id, tensor] : alignment.tensors) {
    const auto found = open.find({pattern_of(id.name), id.kind});
    if (found == open.end()) continue;
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
  for (auto& [key, item] : open) {
    for (const TensorPair& pair : thin_out(item.second)) {
      pairs.push_back(pair);
      fits.push_back(item.first);
    }
  }
  const std::vector<Difference> differences = compare(pairs, {});
  for (std::size_t i = 0; i < pairs.size(); ++i) fits[i]->add(differences[i]);
}

// A placement may be refused outright, by a layout that the sizes do not suit: then which one is found by
// halves, and the others are tried without it.
void try_round(const Trial& trial, std::span<const Search> all, const std::vector<Active>& active) {
  if (active.empty()) return;
  Alignment alignment;
  try {
    alignment = align(trial.trace, with_hypotheses(trial.settings, all, active), layout_of(trial.reference));
  } catch (const InputError&) {
    if (active.size() == 1) {
      active[0].search->hypotheses[active[0].hypothesis].fit.misfits = std::numeric_limits<std::int64_t>::max();
      return;
    }
    const auto middle = active.begin() + static_cast<std::ptrdiff_t>(active.size() / 2);
    try_round(trial, all, {active.begin(), middle});
    try_round(trial, all, {middle, active.end()});
    return;
  }
  measure(trial, alignment, active);
}

}  // namespace

void Fit::add(const Difference& measured) {
  ++tensors;
  reference += measured.reference_square;
  difference += std::max(measured.difference_square, measured.replica_square);
  if (measured.nonfinite_mismatch > 0) difference = std::numeric_limits<double>::infinity();
}

double Fit::error() const {
  if (difference == 0) return 0;
  return reference == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / reference);
}

void try_hypotheses(const Trial& trial, std::span<Search> all, const std::vector<Kind>& wanted) {
  std::size_t rounds = 0;
  const auto is_wanted = [&](Kind kind) { return std::find(wanted.begin(), wanted.end(), kind) != wanted.end(); };
  for (const Search& search : all) {
    if (is_wanted(search.kind)) rounds = std::max(rounds, search.hypotheses.size());
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<Active> active;
    for (Search& search : all) {
      if (is_wanted(search.kind) && round < search.hypotheses.size()) active.push_back({&search, round});
    }
    try_round(trial, all, active);
  }
}

}  // namespace ttrace
