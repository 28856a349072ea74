// Which of many wrong tensors came first, and which follow from it: data flow, as far as names and execution order
// tell it.
//
// What a tensor was computed from:
//   a module's output          its inputs, in the same pass of the same micro-batch, and the parameters inside it
//   a module's grad_input      the gradients of its outputs, its inputs and parameters
//   a parameter's param_grad   the same, of all calls of the module
//   main_grad                  the parameter's param_grads of all micro-batches
//   param_delta, param_after   its main_grad, and the scalars of the step (the gradient's norm)
// and what a module makes in later iterations, from the updates of its parameters and of those tied to them.
// A module's input, and an output's gradient, is what some other module just made: it follows from the last tensor of
// its micro-batch that was wrong before it. So does what is wrong though all that it was computed from agrees, where
// that is nearly wrong itself: the error came in.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ttrace/annotation.h"
#include "ttrace/trace.h"

namespace ttrace {

struct Observation {
  TensorId id;
  bool agrees = true;
  double ratio = 0;  // of the error and what is allowed; infinity where that is no matter of size
};

struct Root {
  std::size_t observation = 0;  // the wrong tensor that nothing wrong explains
  // All that it was computed from was observed, and agrees: it was made wrong where it was recorded.
  bool made_here = false;
  std::vector<std::size_t> explained;  // the wrong tensors that follow from it, in order
};

// `observations` in order of execution, each identity once. Every wrong one is a root or explained by one: where
// several lead to it, by the first. Of modules nested in each other the innermost is the root. The first wrong one
// always is a root. `tied`: names of parameters that are others of the observed ones (dotted suffixes).
//
// `rewritten`: whatever arrived at a module, it went on with the right input and output gradients (ttrace/rewrite/).
// Then nothing that arrived explains what a module makes; what a wrong module makes later is its own fault as well.
std::vector<Root> find_roots(std::span<const Observation> observations, std::span<const TiedRule> tied = {},
                             bool rewritten = false);

}  // namespace ttrace
