// Compares the options with which two runs' optimizers stepped.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "align/aligned_trace.h"
#include "tolerance/update_tolerance.h"

namespace ttrace {

// Holds what a rank says of a parameter's step.
struct StatedStep {
  std::int32_t rank = 0;
  const OptimizerStep* step = nullptr;
  Dtype parameter = Dtype::kFloat32;  // of the parameter; the value that is updated has another where `master` says so
};

// Returns the dtype of the value that is updated: the master, or the parameter itself.
Dtype updated_dtype(const StatedStep& stated);

// Holds, by iteration and canonical name, what each rank says that has the parameter, or a part of it, in an optimizer;
// where none has, what each says that has the parameter.
using StatedSteps = std::map<std::pair<std::int32_t, std::string>, std::vector<StatedStep>>;
StatedSteps stated_steps(const AlignedTrace& aligned);

// Measures the options of all `runs` of the reference's program, the perturbed ones and then the rerun if there is one.
OptionTolerances measure_option_tolerances(const AlignedTrace& reference, std::span<const AlignedTrace> runs);

// Holds how far two steps may be apart, relatively.
struct AllowedOptions {
  double clip = -1;                        // the clip factors; below 0: they are not compared
  const OptionSamples* samples = nullptr;  // of options that differ from run to run; null: none do
};

// Says how two steps' options differ: `learning rate 0.0012, reference 0.001`. Empty where they are equal.
std::string describe_other_options(const StatedStep& reference, const StatedStep& candidate,
                                   const AllowedOptions& allowed);

// What a program steps in the place of parameters and keeps by hand, by its optimizers' groups, goes by these names.
bool are_masters(const OptimizerStep& step);

// Says how options of the same class become others for the next step than `reference`'s do, relatively to what they are
// in this one: a learning rate that the program divides itself, since it sums gradients, is no other. Empty where those
// of one of `masters`, a rank's, become the same, or none is of the class.
std::string describe_other_development(const StatedStep& reference, std::span<const OptimizerStep* const> masters,
                                       const AllowedOptions& allowed);

// True where the options of both could be compared: they are of one class, or both of known rules.
bool are_comparable(const OptimizerStep& reference, const OptimizerStep& candidate);

}  // namespace ttrace
