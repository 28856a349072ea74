// Decides which of a search's hypotheses may be right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "annotate/observation.h"
#include "annotate/search.h"

namespace ttrace {

// True for an error (`Fit::error`) small enough for the same tensor, recorded by a correct program.
bool is_near(double error);

// True where `error` is smaller than `other` by more than the margin of a tolerance. Errors below `epsilon`, that of
// the dtype, are mere rounding and count as equal.
bool clearly_better(double error, double other, double epsilon);

struct Decision {
  const Search* search = nullptr;
  std::vector<const Hypothesis*> viable;     // under which the fewest tensors do not fit together
  std::vector<const Hypothesis*> plausible;  // the viable ones that nothing rules out; best first
  bool near_reference = false;               // true where the best one is
  bool empty() const { return viable.empty(); }
  const Hypothesis& best() const { return *plausible[0]; }
};

using Decisions = std::map<SubjectKey, Decision>;

// Returns null where there is none, or no placement fits.
const Decision* find_decision(const Decisions& decisions, const std::string& pattern, Kind kind);

// A viable hypothesis is ruled out by one that is clearly better. Where none comes near the reference, all viable ones
// are plausible, the likeliest first.
Decision decide(const Search& search);

// Removes from the plausible hypotheses of `lead` those that `follower` rules out: the decision of a kind that is
// placed as `lead` is, such as its gradient. Does nothing where that would leave none.
void narrow(Decision& lead, Kind lead_kind, const Decision& follower, Kind follower_kind,
            const PlacementChoices& choices);

// True where one of the plausible hypotheses places the tensor as `placements` do.
bool is_plausible(const Decision& decision, const Placements& placements, const PlacementChoices& choices);

// Returns the placements that a rule must name to place tensors as `decision.best()` does. It leaves out axes that
// would replicate without being named.
Placements named_placements(const Decision& decision, const PlacementChoices& choices);

// Returns what `decision.best()` does along each axis that it names.
std::vector<AxisObservation> observe_axes(const Decision& decision, const PlacementChoices& choices);

}  // namespace ttrace
