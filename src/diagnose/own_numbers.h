// Tells what rests on random numbers of its own, and what was drawn by mistake.
//
// Traces say which module calls drew, and the states of the generators before (base/random_draws.h). A tensor that
// comes after a draw need not be the reference's where both runs draw there: ranks draw for their own samples, or from
// another seed. It must be where each rank draws for the whole tensor from the reference's state; where only one of the
// runs draws; where copies that are to be equal do; and where a recomputation draws other numbers than its forward. Of
// traces that do not say it, the class of a module tells that its output is drawn.
#pragma once

#include <string>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Returns how far a tensor that was measured is from the reference's, or a copy from the first.
double largest_error_of(const Finding& finding);

// True for a parameter in fp32 or wider that begins with the reference's value but for some roundings, in half of its
// elements at least, as of another order of sums.
bool begins_by_rounding(const Finding& finding, const Evidence& evidence);

// Says why a wrong output or input, or a parameter that begins by rounding, need not be the reference's, and how to make the runs comparable; empty where it must.
std::string describe_own_numbers(const Finding& finding, const Evidence& evidence);

// True for a recomputed tensor before which some rank drew other numbers than in its forward.
bool is_redrawn(const TensorId& id, const Evidence& evidence);

// A clause that says in which way the draws before a wrong tensor are others; empty where they are not, or nobody knows.
std::string drawn_otherwise(const Finding& finding, const Evidence& evidence);

}  // namespace ttrace
