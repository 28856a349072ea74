#include "annotate/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace ttrace {
namespace {

// The factor by which tolerances allow correct runs of one program to differ more than was seen
// (estimate-tolerance's default margin): what is apart by more is not the same.
constexpr double kMargin = 3;

// Half of a tensor's norm. One rank's term of a sum over two is off by half or more, a swapped half by more
// than that; correct programs are off by a few machine epsilons.
constexpr double kNear = 0.5;

std::string measured(const Fit& fit) {
  return fmt::format("{} tensor{}, rel_err {:.2g}", fit.tensors, fit.tensors == 1 ? "" : "s", fit.error());
}

std::string far(const Fit& fit) {
  return fmt::format("from the shapes alone, nothing comes near the reference ({})", measured(fit));
}

bool names(const Placements& placements, const std::string& axis) { return !role_of(placements, axis).empty(); }

// What `placements` say, in place of a role of the axis `of_best`, on another factoring of the ranks; empty where they
// lie on the factoring of `best`.
std::string elsewhere(const Placements& placements, const AxisPlacement& of_best, const Placements& best) {
  if (names(placements, of_best.axis)) return "";
  std::vector<std::string> lines;
  bool other_axes = false;
  for (const AxisPlacement& axis : placements) {
    if (names(best, axis.axis)) continue;
    other_axes = true;
    if (axis.placement != Placement::kReplicate) lines.push_back(to_string(axis));
  }
  if (!other_axes) return "";
  return lines.empty() ? "replicate" : fmt::format("{}", fmt::join(lines, " with "));
}

// The roles of the axis in the standing hypotheses other than the best's.
std::set<std::string> other_roles(const Decision& decision, const AxisPlacement& axis) {
  const Placements& best = decision.best().axes;
  std::set<std::string> others;
  for (const Hypothesis* other : decision.standing) {
    const std::string role = role_of(other->axes, axis.axis), line = elsewhere(other->axes, axis, best);
    // Whether another factoring splits or sums is a doubt about the axes that do so here.
    if (!line.empty() && axis.placement == Placement::kReplicate) continue;
    others.insert(!line.empty() ? line : role.empty() ? "unnamed" : role);
  }
  others.erase(role_of(best, axis.axis));
  return others;
}

// What is known of one axis: certain when all that stands agrees about it.
DraftLine line_of(const Decision& decision, const AxisPlacement& axis) {
  const std::string role = role_of(decision.best().axes, axis.axis);
  const Fit& fit = decision.best().fit;
  DraftLine line{to_string(axis), false, {}};
  if (!decision.fits) {
    line.why = far(fit);
    return line;
  }
  if (const std::set<std::string> also = other_roles(decision, axis); !also.empty()) {
    line.why = fmt::format("{}; fits as well: {}", measured(fit), fmt::join(also, ", "));
    return line;
  }
  line.certain = true;
  double otherwise = std::numeric_limits<double>::infinity();
  bool alternatives = false;
  for (const Hypothesis* other : decision.viable) {
    if (role_of(other->axes, axis.axis) == role) continue;
    alternatives = true;
    otherwise = std::min(otherwise, other->fit.error());
  }
  line.why = fmt::format("{}; {}", measured(fit),
                         alternatives ? fmt::format("otherwise {:.2g}", otherwise) : "the shapes allow no other");
  return line;
}

}  // namespace

bool is_near(double error) { return error <= kNear; }

bool clearly_better(double error, double other, double epsilon) { return other > kMargin * std::max(error, epsilon); }

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
  decision.fits = is_near(best);
  if (!decision.fits) {
    decision.standing = decision.viable;
    return decision;
  }
  for (const Hypothesis* hypothesis : ranked) {
    if (!clearly_better(best, hypothesis->fit.error(), epsilon_of(search.dtype))) {
      decision.standing.push_back(hypothesis);
    }
  }
  return decision;
}

void narrow(Decision& value, Kind value_kind, const Decision& gradient, Kind gradient_kind, const Choices& choices) {
  if (value.standing.size() < 2 || !gradient.fits) return;
  std::vector<const Hypothesis*> left;
  for (const Hypothesis* hypothesis : value.standing) {
    if (stands(gradient, followed(hypothesis->axes, value_kind, gradient_kind), choices)) left.push_back(hypothesis);
  }
  if (!left.empty()) value.standing = std::move(left);
}

bool stands(const Decision& decision, const Placements& placements, const Choices& choices) {
  return std::any_of(decision.standing.begin(), decision.standing.end(), [&](const Hypothesis* hypothesis) {
    return key_of(hypothesis->axes, choices, decision.search->in_microbatches) ==
           key_of(placements, choices, decision.search->in_microbatches);
  });
}

Placements placements_of(const Decision& decision, const Choices& choices) {
  Placements named;
  for (const AxisPlacement& axis : decision.best().axes) {
    const bool against_habit = decision.search->in_microbatches && axis.axis == choices.microbatch_axis;
    const bool says_nothing = !decision.fits || line_of(decision, axis).certain;
    if (axis.placement != Placement::kReplicate || against_habit || !says_nothing) named.push_back(axis);
  }
  // The axes that are named also say on which factoring of the ranks the tensor lies.
  const bool same = key_of(named, choices, decision.search->in_microbatches) ==
                    key_of(decision.best().axes, choices, decision.search->in_microbatches);
  return same ? named : decision.best().axes;
}

std::vector<DraftLine> lines_of(const Decision& decision, const Choices& choices) {
  std::vector<DraftLine> lines;
  for (const AxisPlacement& axis : placements_of(decision, choices)) lines.push_back(line_of(decision, axis));
  if (!lines.empty()) return lines;
  const bool may_be_empty = !is_parameter_kind(decision.search->kind);
  // One that is there says what its values were like.
  for (const AxisPlacement& axis : decision.best().axes) {
    if (axis.axis == choices.spare_axis) return {line_of(decision, axis)};
  }
  const std::string text = may_be_empty ? "{}" : choices.spare_axis + ": replicate";
  return {{text, decision.fits, decision.fits ? measured(decision.best().fit) : far(decision.best().fit)}};
}

}  // namespace ttrace
