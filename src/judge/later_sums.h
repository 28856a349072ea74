// Tells tensors of which each rank has a term, and whose sum, or mean, is taken outside of the modules, or for nobody: the
// loss of a rank's part of the sequence, the gradient of a weight that acts on it, the output of a row-parallel layer.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

// True where the gradients that steps take, or else those of micro-batches, and what steps make were compared, and none
// of them is wrong. A report keeps those that are right apart, as `passed`.
bool is_training_right(std::span<const Finding> findings, std::span<const Finding> passed = {});

// Returns the first iteration of which that is not true, behind one of which it is: kNoIteration where there is none, and 0
// where nothing of the kind is right before.
inline constexpr std::int32_t kNoIteration = std::numeric_limits<std::int32_t>::max();
std::int32_t end_of_right_training(std::span<const Finding> findings, std::span<const Finding> passed = {});

// Lets main gradients pass that nobody said are copies, and of which each rank has its own, where these add up to the
// reference's, or are terms of its mean, and most of the steps that take them are right: the optimizer reduces them in
// its step. Says so in `notes`.
void pass_reduced_in_step(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                          std::vector<std::string>& notes);

// Takes out of `findings` those about updates that are not what a rank's own gradient gives, where each rank has another
// gradient, every rank's parameter was changed once more behind the step, and what this made is the reference's: the
// ranks' parameters are averaged, as by local SGD (Stich, arXiv 1805.09767). Where no measured tolerance holds the update,
// they prove nothing. Says so in `notes`. To be called before `pass_reduced_in_step`.
void pass_averaged_after(const StepVerdicts& steps, std::vector<Finding>& findings, std::vector<std::string>& notes);

// Lets losses, gradients of micro-batches, and outputs and gradients of outputs and inputs of modules with parameters, or
// outputs whose own gradient is right, pass whose place was guessed, and whose copies are others on each rank, where these
// add up to the reference's, or to a multiple of it by the number of ranks that may hold the same term, and training is
// right: what steps take and make, the parameter's own main gradient included. Behind a mistake elsewhere, the gradient of
// an input whose output has all of it, and is right; that of an output or a parameter of a module whose steps take what is
// right, or of which this holds in another layer. Says so in `notes`.
void pass_later_sums(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                     std::vector<std::string>& notes);

}  // namespace ttrace
