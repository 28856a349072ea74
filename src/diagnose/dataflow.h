// Finds which of many wrong tensors came first, and which follow from it, by the data flow that names and execution
// order tell.
//
// A tensor was computed from:
//   a module's output          its inputs, in the same pass of the same micro-batch, and the parameters inside it
//   a module's grad_input      the gradients of its outputs, its inputs and parameters; where other modules are given
//                              the same tensor, the gradients of their outputs, too: it is the sum
//   a parameter's param_grad   the same, of all calls of the module; and what is wrong in modules inside it, between
//                              which it may use the parameter; and the ends of samples that a rank is not given
//   main_grad                  the parameter's param_grads of all micro-batches
//   param_delta, param_after   its main_grad, and the scalars of the step (the gradient's norm)
// In later iterations a module also computes from the updates of its parameters, and of those tied to them. A step that
// is wrong by itself is a root, whatever its gradients are, and explains what nothing else does in later iterations.
// Updates that are left out (`left_out`) follow from what is wrong before them, but not from one another: each is a
// root, and the first of an iteration explains what nothing else does behind it. So is a step that comes more or less
// often than the reference's, and makes the iteration another.
//
// Another module made a module's input, or its output's gradient, just before. A wrong one therefore follows from the
// last wrong tensor of its micro-batch. The same holds of a wrong tensor whose sources all agree, if one of them shows
// at least half of its error (by ratio to what is allowed): the error was there before, only too small to fail.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "base/trace.h"

namespace ttrace {

struct Observation {
  TensorId id;
  bool agrees = true;
  double ratio = 0;        // error / allowed; infinity where the error has no size (a wrong shape, a missing tensor)
  bool passed_on = false;  // an output or grad_input that is, in both runs, what its module was given
  bool of_step = false;    // an optimizer's step is wrong by itself, whatever the gradients are
  bool left_out = false;  // an update is not there, or not as often as in the reference: of a model, or by an optimizer
  bool truncated = false;  // an input that lacks the ends of samples: gradients of parameters are summed over the rest
  bool is_open = false;    // a question: it agrees as far as anybody knows, and is no source that is known to be right
  std::vector<TensorId> shared = {};  // of a grad_input: inputs of other modules that are the same tensor
};

struct Root {
  std::size_t observation = 0;  // the wrong tensor that nothing wrong explains
  // True where the tensor's sources were observed and agree, so that the module it was recorded at made it wrong.
  bool made_here = false;
  std::vector<std::size_t> explained;  // the wrong tensors that follow from it, in order
};

// `observations` are in order of execution, each identity once. Every wrong one becomes a root or is explained by one:
// by the first, if several lead to it. Of modules nested in each other the innermost is the root. The first wrong
// observation is always a root. `tied` lists further names (dotted suffixes) of observed parameters.
//
// `rewritten` says that every module was given the reference's inputs and output gradients, whatever arrived at it
// (ttrace/rewrite/). Then no wrong input explains what a module makes, and a wrong module is to blame for all it makes.
// What a module only passes on is recorded as it came, and follows from the last wrong tensor of its micro-batch.
std::vector<Root> find_roots(std::span<const Observation> observations, std::span<const TiedRule> tied = {},
                             bool rewritten = false);

}  // namespace ttrace
