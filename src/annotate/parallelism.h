// Drafts the block `parallelism:`. Each takes `settings`, what is known so far, adds to it and to `lines`
// what it found, and leaves alone what `settings` already says.
#pragma once

#include <map>
#include <vector>

#include "annotate/decision.h"

namespace ttrace {

// Layer numbers that more than one pipeline stage uses are local ones. `reference` may be null.
void propose_pipeline(const Trace& trace, const Alignment* reference, Annotations& settings,
                      std::vector<DraftLine>& lines);

// Both orders are tried on what flows into modules. `said` is true where somebody has given an order.
void propose_microbatches(const Trace& trace, const Alignment& reference, bool said, Annotations& settings,
                          std::vector<DraftLine>& lines);

// Products and quotients of axis sizes are tried on the gradients of activations, placed as their values
// are. `main_grads_fit` is true where the optimizer's gradients agree with the reference's without a factor.
void propose_loss_scale(const Trace& trace, const Alignment& reference, const std::map<SubjectKey, Decision>& decisions,
                        const Choices& choices, bool main_grads_fit, Annotations& settings,
                        std::vector<DraftLine>& lines);

}  // namespace ttrace
