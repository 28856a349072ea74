// Tells states that ranks hand on along a sequence of which each has a part: what a recurrent layer returns beside its
// outputs is each rank's own, and the last rank's is the reference's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "diagnose/diagnosis.h"

namespace ttrace {

struct HandedStates {
  std::vector<std::size_t> findings;  // of the states, and what lacks or differs because of them; sorted
  std::string axis;                   // along which the sequence lies
  std::string lines;                  // of annotations, that leave them out
};

// Of an iteration whose training is right, or where each rank is given the very bits that the one before has returned.
// Beside the states: what is given and comes back for them, which the first rank, or the last, lacks; and where training is
// right, gradients inside a layer that returns one, on the ranks before the last, to which the gradient of the state comes
// as well. Empty where no such state differs.
HandedStates find_handed_states(const Report& report, const Evidence& evidence);

}  // namespace ttrace
