// Checks the steps that a run's optimizers took, against that run alone: no reference, no tolerance, no mapping.
//
// What an optimizer does with a parameter follows from what was recorded on the same rank: its gradient,
// the options of its group, and its state, which is zero before the first step, was recorded once, or is what the
// recorded gradients have made of that. An update is computed again, in fp64; the recorded one may be away from that by
// what the optimizer's own arithmetic rounds, element by element:
//
//   Adam   g = clip_factor main_grad (+ weight_decay p, where that is L2)     p the value that is updated, its master
//          m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  M = b1 M + (1 - b1) |g|    (amsgrad: the largest v)
//          update = -lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)  (- lr weight_decay p, where it is decoupled)
//   SGD    m = momentum m + (1 - dampening) g, update = -lr m or, with Nesterov's, -lr (g + momentum m)
//   Lion   update = -lr sign(b1 m + (1 - b1) g)  (- lr weight_decay p),  then  m = b2 m + (1 - b2) g; where the sign's
//          number is within its own rounding of zero, either sign is right
//   Adafactor  is no elementwise rule: what it takes from the whole tensor is found first (step/whole_tensor.h), and the
//          bound has what the sums over it round
//
//   bound  half a unit of p in its last place, for what adding it to p rounds (three halves with decoupled weight
//          decay: 1 - lr weight_decay is rounded, and its product with p)
//          + k e (lr M / (sqrt(v) + eps) + |update|), for the rest: e is half the machine epsilon of the arithmetic,
//          and k = 32 + 4 times the steps since the state was known, which leaves room for kernels that compute less
//          carefully than IEEE 754 asks; 8 + 4 times where the arithmetic is bf16 or fp16, whose e is up to 0.4 %.
//
// An element is wrong where it is more than twice the bound away; of a bf16 or fp16 value, whose rounding is most of
// the bound, what is rounded counts once. There, a step that is wrong by less than that is seen over all elements
// together, of a tensor and of all tensors of the optimizer (src/step/low_precision.h): a step 1 % too small of 40,000
// bf16 elements, where single ones show nothing. Where each element stands still, or would round to the same neighbour,
// a wrong step leaves the run as it is, and is not seen.
//
// Then the parameter must be what the step made of the value that is updated, rounded to its dtype: bit by bit where
// that value is known, else to a unit in the last place.
//
// What this does not prove: that gradients or options are right (a check compares them with a reference's), and that
// the rule is the one that was meant. It says nothing of optimizers that it does not know.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/outcome.h"

namespace ttrace {

struct StepCheck {
  // One for each param_delta: `pass`, `fail` (step-differs) or `untrusted` (not-checkable: the message says why), and
  // one for each param_after that could be checked: `pass` or `fail` (copy-differs).
  std::vector<Finding> findings;
  // Holds, for each right param_delta, what it was computed from; for each right param_after, the updates, and the
  // value that they were added to.
  std::map<TensorId, std::vector<TensorId>> rests_on;
  std::map<TensorId, std::string> optimizers;  // of each param_delta: the class that made it
  std::map<TensorId, std::string> unchecked;   // of each param_delta that was not checked: why
  // Each wrong param_after of a value that the optimizer itself updates, which something else than the step has changed,
  // and whether by no more than moving it and putting it back rounds.
  std::map<TensorId, bool> changed_beside;
  // Each wrong param_delta of which every rank says that the parameter was changed once more behind the step.
  std::set<TensorId> changed_after;
  StepCoverage coverage;  // its `parameters` is 0 where the trace says of no optimizer
};

// Computes series of updates again, those of one parameter on one rank each, and returns a tally for each update of
// each series (src/step/replay.h). It depends on a series alone.
struct ParameterSeries;
struct UpdateTally;
using Replay = std::function<std::vector<std::vector<UpdateTally>>(std::span<const ParameterSeries* const>)>;

// `alignment` is that of `trace`. `threads` as in CompareOptions; any number gives the same bits. `replay` does most of
// the work; null: this process does.
StepCheck check_steps(const Trace& trace, const Alignment& alignment, int threads, const Replay* replay = nullptr);

}  // namespace ttrace
