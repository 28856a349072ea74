// Refuses runs that are no runs of the reference's program: what they respond is no rounding, and the largest response
// of all decides what is allowed.
#pragma once

#include <span>
#include <string>

#include "base/error.h"
#include "tolerance/estimate.h"

namespace ttrace {

// A run moves tensors much farther than every other does. Of runs of one program, rounding may have decided a choice in
// it alone: which of equal scores are the largest.
class UnlikeOthers : public InputError {
 public:
  UnlikeOthers(std::string which, const std::string& message) : InputError(message), run(std::move(which)) {}
  std::string run;  // as RunDifferences::what names it
};

// An optimizer's step is not smooth (floors.cpp): a token that is routed elsewhere turns the sign of so many small
// gradients that a typical update moves 17 times as far (Megatron-core's experts in bf16). It is held to the gradients.
// So is what follows parameters, such as a moving average, and what a later iteration begins with.
bool jumps(Kind kind);

// Returns how far a parameter may be off where each process fits its initial value to the same data, as by least squares,
// whose sums round otherwise each time: some roundings of fp32 or wider; of less, a few are no small error, and it is 0.
double rounding_of_beginning(Dtype dtype);

// Throws InputError, naming the run, where it begins with other parameters than the reference: it has another seed, or is
// another program. Only pairs of parameters are looked at.
void require_same_beginning(const RunDifferences& run);

// Throws InputError, naming the run, where one that is perturbed, or the rerun (may be null)
// - holds NaN or Inf in a tensor that is finite in the reference;
// - begins with other parameters than the reference, as `require_same_beginning` says;
// - moves a kind of tensors, or one tensor, much farther than every (other) perturbed run does, and than rounding: then
//   UnlikeOthers.
void require_one_family(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                        const EstimateOptions& options);

// Throws InputError where the runs of now agree with each other and not with the reference: it was kept, and the program
// has changed since, which tolerances of these runs would allow. `from_rerun` has the differences of perturbed runs from
// the rerun. A program that does not repeat itself differs from itself as much as from the reference.
void require_program_of_reference(const RunDifferences& rerun, std::span<const RunDifferences> from_rerun,
                                  const EstimateOptions& options);

// Throws InputError where most of what was measured, of any kind of tensors, is noise (`unproved_kinds` has the rule):
// no run could be checked with such tolerances.
void require_signal(const ToleranceFile& file, std::span<const RunDifferences> perturbed);

}  // namespace ttrace
