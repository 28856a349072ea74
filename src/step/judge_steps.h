// Judges the optimizers' steps of a candidate: each against the run's own gradients, options and state
// (step/step.h), and its options against the reference's.
//
// Options are compared by the parameter's canonical name, to a relative 1e-6: learning rate, betas, eps, weight decay,
// momentum, the count of steps and so on. Others, such as `foreach` and `fused`, choose between kernels and may differ.
// The clip factor follows the norm of the gradients, and may differ by three times what that may; where there is no
// tolerance for the norm, by the relative difference of all main gradients together, which the norms cannot exceed.
//
// The reference's own steps are checked alike. Where all steps of a class of optimizers are wrong on both sides, the
// class follows another rule than is known of it, and its steps were not checked. Where single ones are wrong on both
// sides, a program changes these parameters itself (it normalises or masks them, looks ahead, or moves weights and puts
// them back), and they are held against the reference's by regression and their tolerances. Else a wrong step of the
// reference is a finding as well.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "base/outcome.h"
#include "judge/judge.h"
#include "step/compared.h"
#include "step/step.h"

namespace ttrace {

struct JudgedSteps {
  StepVerdicts verdicts;
  std::optional<StepCoverage> coverage;  // of the candidate; none where it says nothing of an optimizer
  std::vector<std::string> notes;
};

// Lists, for each of the candidate's parameters, those of the reference that are made of it, where the names are not
// the same.
using ParameterCounterparts = std::map<std::string, std::vector<std::string>>;

// With `counterparts`, what was compared is in the reference's names, while `candidate` is in its own. `replay` is as
// in `check_steps`, and it throws as that does.
JudgedSteps judge_steps(const AlignedTrace& reference, const AlignedTrace& candidate, const Compared& compared,
                        const ParameterCounterparts* counterparts = nullptr, const Replay* replay = nullptr);

}  // namespace ttrace
