// What the bytes of a run say of how its ranks are arranged, where neither its program nor its user does.
#pragma once

#include <string>

#include "base/trace.h"

namespace ttrace {

// Returns the axes of a candidate whose ranks hold one model and each a part of the samples of a reference of one rank:
// "dp=4"; "" where that is not so. Each rank must hold all parameters of the reference in their shapes, with the same
// bytes. What the model is given must be the reference's in all but the first dimension, which the ranks divide, and half
// of the reference's rows must be there, bit for bit: a rank with wrong samples shows in the comparison, not here.
std::string data_parallel_axes(const Trace& reference, const Trace& candidate);

// Returns the axes to propose for a run of several ranks that nobody arranges, by its first iteration: "pp=4" where the
// ranks hold parameters of their own and one rank alone has a loss; else by which of them give their models the same
// bytes: "tp=4" where all do, "tp=2,dp=2" where pairs do, next to each other, "dp=2,tp=2" where those apart do, else
// "dp=4". Ranks with the same samples may be arranged otherwise, as by experts: that is for people to say.
std::string axes_to_propose(const Trace& trace);

}  // namespace ttrace
