#include "annotate/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace ttrace {
namespace {

// The default margin of `ttrace estimate-tolerance`: the factor by which tolerances allow correct runs to differ more
// than the perturbed runs did. Errors that are further apart do not come from rounding.
constexpr double kMargin = 3;

// Half of a tensor's norm. One rank's term of a sum over two is off by half or more, a swapped half by more
// than that; correct programs are off by a few machine epsilons.
constexpr double kNear = 0.5;

std::string describe_error(const Fit& fit) {
  const std::string compared = fit.held == fit.tensors ? "" : fmt::format("{} of ", fit.tensors);
  return fmt::format("{}{} tensor{}, rel_err {:.2g}", compared, fit.held, fit.held == 1 ? "" : "s", fit.error());
}

std::string describe_misfit(const Fit& fit) {
  return fmt::format("from the shapes alone, nothing comes near the reference ({})", describe_error(fit));
}

constexpr double kUnrelated = 1;

bool names_axis(const Placements& placements, const std::string& axis) { return !role_of(placements, axis).empty(); }

// Says in words what `placements` do with the ranks of the axis `of_best` where they use another factoring of the
// ranks; empty where they use the factoring of `best`.
std::string role_on_other_factoring(const Placements& placements, const AxisPlacement& of_best,
                                    const Placements& best) {
  if (names_axis(placements, of_best.axis)) return "";
  std::vector<std::string> lines;
  bool other_axes = false;
  for (const AxisPlacement& axis : placements) {
    if (names_axis(best, axis.axis)) continue;
    other_axes = true;
    if (axis.placement != Placement::kReplicate) lines.push_back(to_string(axis));
  }
  if (!other_axes) return "";
  return lines.empty() ? "replicate" : fmt::format("{}", fmt::join(lines, " with "));
}

// Returns the roles that plausible hypotheses give the axis and that differ from its role in the best one.
std::set<std::string> competing_roles(const Decision& decision, const AxisPlacement& axis) {
  const Placements& best = decision.best().axes;
  std::set<std::string> others;
  for (const Hypothesis* other : decision.plausible) {
    const std::string role = role_of(other->axes, axis.axis), line = role_on_other_factoring(other->axes, axis, best);
    // A hypothesis on another factoring puts in doubt the axes that split or sum here, not those that replicate.
    if (!line.empty() && axis.placement == Placement::kReplicate) continue;
    others.insert(!line.empty() ? line : role.empty() ? "unnamed" : role);
  }
  others.erase(role_of(best, axis.axis));
  return others;
}

// True where a plausible hypothesis splits the same dimension in another order, and has another error: the tensor lies as
// neither does where both errors are far beyond rounding, and samples in an order of their own are near in any.
bool is_order_open(const Decision& decision, const AxisPlacement& axis) {
  const Hypothesis& best = decision.best();
  return std::any_of(decision.plausible.begin(), decision.plausible.end(), [&](const Hypothesis* other) {
    return other->fit.error() != best.fit.error() &&
           std::any_of(other->axes.begin(), other->axes.end(), [&](const AxisPlacement& placement) {
             return placement.axis == axis.axis && placement.placement == Placement::kShard &&
                    placement.placement == axis.placement && placement.dim == axis.dim &&
                    placement.layout != axis.layout;
           });
  });
}

// Says what the best hypothesis does with the axis: certain when all plausible hypotheses agree about it.
AxisObservation observe_axis(const Decision& decision, const AxisPlacement& axis) {
  const std::string role = role_of(decision.best().axes, axis.axis);
  const Fit& fit = decision.best().fit;
  AxisObservation seen{axis, false, false, {}};
  if (!decision.near_reference) {
    seen.why = describe_misfit(fit);
    seen.is_far = fit.near == 0;
    return seen;
  }
  if (const std::set<std::string> also = competing_roles(decision, axis); !also.empty()) {
    seen.why = fmt::format("{}; fits as well: {}", describe_error(fit), fmt::join(also, ", "));
    seen.is_order_open = is_order_open(decision, axis);
    return seen;
  }
  double otherwise = std::numeric_limits<double>::infinity();
  bool alternatives = false;
  for (const Hypothesis* other : decision.viable) {
    if (role_of(other->axes, axis.axis) == role) continue;
    alternatives = true;
    otherwise = std::min(otherwise, other->fit.error());
  }
  // Where shapes allow no other placement, the elements may still lie in another order: the error of numbers that have
  // nothing to do with the reference's is its norm or more.
  seen.certain = alternatives || clearly_better(fit.error(), kUnrelated, 0);
  seen.why = fmt::format("{}; {}", describe_error(fit),
                         alternatives ? fmt::format("otherwise {:.2g}", otherwise) : "the shapes allow no other");
  return seen;
}

}  // namespace

bool is_near(double error) { return error <= kNear; }

bool clearly_better(double error, double other, double epsilon) { return other > kMargin * std::max(error, epsilon); }

const Decision* find_decision(const Decisions& decisions, const std::string& pattern, Kind kind) {
  const auto found = decisions.find({pattern, kind});
  return found == decisions.end() || found->second.empty() ? nullptr : &found->second;
}

Decision decide(const Search& search) {
  Decision decision;
  decision.search = &search;
  std::int64_t misfits = std::numeric_limits<std::int64_t>::max();
  for (const Hypothesis& hypothesis : search.hypotheses) {
    if (hypothesis.fit.tensors > 0) misfits = std::min(misfits, hypothesis.fit.misfits);
  }
  for (const Hypothesis& hypothesis : search.hypotheses) {
    if (hypothesis.fit.tensors > 0 && hypothesis.fit.misfits == misfits) decision.viable.push_back(&hypothesis);
  }
  if (decision.viable.empty()) return decision;
  std::vector<const Hypothesis*> ranked = decision.viable;
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Hypothesis* a, const Hypothesis* b) { return a->fit.error() < b->fit.error(); });
  const double best = ranked[0]->fit.error();
  decision.near_reference = is_near(best);
  if (!decision.near_reference) {
    decision.plausible = decision.viable;
    return decision;
  }
  for (const Hypothesis* hypothesis : ranked) {
    if (!clearly_better(best, hypothesis->fit.error(), epsilon_of(search.dtype))) {
      decision.plausible.push_back(hypothesis);
    }
  }
  return decision;
}

void narrow(Decision& lead, Kind lead_kind, const Decision& follower, Kind follower_kind,
            const PlacementChoices& choices) {
  if (lead.plausible.size() < 2 || !follower.near_reference) return;
  std::vector<const Hypothesis*> kept;
  for (const Hypothesis* hypothesis : lead.plausible) {
    if (is_plausible(follower, follower_placements(hypothesis->axes, lead_kind, follower_kind), choices))
      kept.push_back(hypothesis);
  }
  if (!kept.empty()) lead.plausible = std::move(kept);
}

bool is_plausible(const Decision& decision, const Placements& placements, const PlacementChoices& choices) {
  return std::any_of(decision.plausible.begin(), decision.plausible.end(), [&](const Hypothesis* hypothesis) {
    return equivalence_key(hypothesis->axes, choices, decision.search->in_microbatches) ==
           equivalence_key(placements, choices, decision.search->in_microbatches);
  });
}

Placements named_placements(const Decision& decision, const PlacementChoices& choices) {
  Placements named;
  for (const AxisPlacement& axis : decision.best().axes) {
    const bool overrides_default = decision.search->in_microbatches && is_microbatch_axis(choices, axis.axis);
    if (axis.placement != Placement::kReplicate || overrides_default) named.push_back(axis);
  }
  // The named axes also tell which factoring of the ranks the tensor uses: fewer of them may mean another.
  const bool same = equivalence_key(named, choices, decision.search->in_microbatches) ==
                    equivalence_key(decision.best().axes, choices, decision.search->in_microbatches);
  return same ? named : decision.best().axes;
}

std::vector<AxisObservation> observe_axes(const Decision& decision, const PlacementChoices& choices) {
  const Placements named = named_placements(decision, choices);
  std::vector<AxisObservation> seen;
  for (const AxisPlacement& axis : decision.best().axes) {
    seen.push_back(observe_axis(decision, axis));
    seen.back().by_default = role_of(named, axis.axis).empty();
  }
  return seen;
}

}  // namespace ttrace
