// Tells what each rank computes of all samples, which it has gathered, from a term of a sum over ranks: losses that
// contrast samples, or pairs of them. Each rank then has the whole loss and, of what was gathered, a gradient with
// respect to its own samples alone; so programs multiply the loss by what the reduction of gradients divides them by.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

// Lets the loss of a micro-batch pass, and what goes into it and comes back from it, which were taken for terms of sums,
// where each rank's copy is the reference's, times the loss scale: gradients, outputs of modules without parameters, and
// single numbers that others return. What is learned of the loss must say so: most gradients that the steps of the
// iteration take are the reference's. Where most are another multiple of the reference's, and each rank's loss is the
// same multiple, the loss is what is wrong; then the others alone may pass. Where most gradients that steps take are right, so may
// what comes back of a part of the loss that each rank has whole, beside terms of the rest; its own place is a guess then.
// Says so in `notes`.
void pass_whole_losses(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                       std::vector<Finding>& findings, std::vector<std::string>& notes);

// Lets tensors pass of which the first rank's copy is right, and others have the samples in another order: within the
// modules without parameters around one that was given, on every rank, the same rows, bit for bit, in another order than
// the first rank's, where training is right; buffers, where their rows are the same so. Says so in `notes`.
void pass_other_orders(std::span<const TensorPair> pairs, const ToleranceFile* tolerance,
                       std::vector<Finding>& findings, std::vector<std::string>& notes);

}  // namespace ttrace
