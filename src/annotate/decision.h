// What a search found out.
#pragma once

#include <cstdint>
#include <vector>

#include "annotate/search.h"
#include "ttrace/annotate/propose.h"

namespace ttrace {

// Measured errors (`Fit::error`): near the reference; better by more than rounding in a dtype of this epsilon,
// and by more than the margin that a tolerance has.
bool is_near(double error);
bool clearly_better(double error, double other, double epsilon);

struct Decision {
  const Search* search = nullptr;
  std::vector<const Hypothesis*> viable;    // the shards fit together and into the reference
  std::vector<const Hypothesis*> standing;  // of those, the ones that nothing rules out; best first
  bool fits = false;                        // the best comes near the reference
  bool empty() const { return viable.empty(); }
  const Hypothesis& best() const { return *standing[0]; }
};

// A hypothesis is ruled out by one that is clearly better. Where none
// comes near the reference, all that are viable stand, the likeliest first.
Decision decide(const Search& search);

// Leaves in `value` only what the tensors of `gradient` (or another that follows) do not rule out, if that
// leaves anything.
void narrow(Decision& value, Kind value_kind, const Decision& gradient, Kind gradient_kind, const Choices& choices);

bool stands(const Decision& decision, const Placements& placements, const Choices& choices);

// The axes that a rule must name to place tensors as `decision.best()` does: not those that replicate without
// being named, where there is nothing to say about them.
Placements placements_of(const Decision& decision, const Choices& choices);

// The lines of that rule. Where it names no axis, one that says that another replicates, or `{}`, which a
// parameter cannot have.
std::vector<DraftLine> lines_of(const Decision& decision, const Choices& choices);

}  // namespace ttrace
