// Puts the micro-batches of the side that runs more and smaller ones into those of the other: who saves memory, or runs a
// pipeline, cuts a batch that another program runs at once.
//
// Which samples a micro-batch holds, the bytes of what the models are given tell. Its activations are then rows of the
// batch's, its gradients of parameters terms of theirs, and its loss is a part of the batch's, or one of the values whose
// mean that is. Nothing is copied: the pieces are cut.
#pragma once

#include <string>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// Changes the side that runs more micro-batches, in the iterations where it does, and says so in `candidate.joined`.
// Returns notes. Where nothing tells which samples its micro-batches hold, an iteration stays as it is; what cannot be put
// together, such as tensors of a length of their own in each micro-batch, is in `candidate.apart`, and stays as it is.
std::vector<std::string> join_microbatches(Alignment& reference, Alignment& candidate);

}  // namespace ttrace
