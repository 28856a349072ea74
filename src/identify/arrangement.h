// What the bytes of a run say of how its ranks are arranged, where neither its program nor its user does.
#pragma once

#include <string>

#include "base/trace.h"

namespace ttrace {

struct ToldAxes {
  std::string axes;            // "dp=4"; empty where the bytes do not tell
  std::string because;         // "each holds the model, and a part of the reference's samples"
  bool are_sequences = false;  // what the ranks divide
};

// Returns the axes of a candidate of several ranks, as its first iteration tells them beside a reference of one rank.
// Each parameter of the reference must be held by all ranks in its shape, by one, or in parts along a dimension. Then they
// are told where
//   dp   the ranks divide what the reference's model is given along the first dimension; or all hold the model, and divide
//        it along the places of images or signals, behind the channels, or nothing was recorded of its inputs, or all are
//        given all of them, and the sum, or the mean, of their losses is the reference's,
//   cp   they divide it along the second, and all hold the model; beside dp where along both, in blocks,
//   tp   all are given the same, or nothing, and hold parts of parameters, most of them the reference's stretches in the
//        order of the ranks; beside dp where ranks in a row, or those apart, do; with sp=tp where they divide sequences,
//   pp   each holds parameters of its own, mostly the reference's, and the last rank alone has a loss; beside dp where
//        several hold the same, and the first of them divide the samples.
// Half of the rows that are divided must be the reference's, bit for bit, and all of them where they are fewer: a rank
// with wrong samples, or that leaves some out, shows in the comparison, not here.
ToldAxes axes_told_by(const Trace& reference, const Trace& candidate);

// Returns the axes to propose for a run of several ranks that nobody arranges, by its first iteration: "pp=4" where the
// ranks hold parameters of their own and one rank alone has a loss, "dp=2,pp=2" where two hold the same and the last two
// have one; else by which of them give their models the same
// bytes: "tp=4" where all do, "tp=2,dp=2" where pairs do, next to each other, "dp=2,tp=2" where those apart do, else
// "dp=4". Ranks with the same samples may be arranged otherwise, as by experts: that is for people to say.
std::string axes_to_propose(const Trace& trace);

}  // namespace ttrace
