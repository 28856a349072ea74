// Sums of a reference's tensors, where the candidate has nothing but the sum.
#pragma once

#include "correspond/groups.h"

namespace ttrace {

// The reference with sums over the micro-batches in place of the gradients of parameters (`param_grad`) of which the
// candidate has such sums alone: those of experts, who are given tokens of several micro-batches at once. A sum has its
// tensors' pieces as terms. The pieces point into the reference's trace.
Alignment summed_as_in_candidate(const SideNames& reference_names, const Alignment& reference,
                                 const SideNames& candidate_names, const Alignment& candidate);

}  // namespace ttrace
