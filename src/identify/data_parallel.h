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

// Returns the axes to propose for a trace, by its first iteration: "pp=2" where the ranks hold parameters of their own and
// one rank alone has a loss, "tp=2" where all give their models the same bytes, else "dp=2".
std::string likely_axes(const Trace& trace);

}  // namespace ttrace
