// Drafts the block `parallelism:`. Each function takes what is known so far as `settings`, adds what it finds to it and
// to `lines`, and does not change what `settings` already says.
#pragma once

#include <map>
#include <vector>

#include "annotate/decision.h"

namespace ttrace {

// Drafts `pipeline:` where more than one stage uses the same layer numbers, so that they are local to the stage.
// `reference` may be null.
void propose_pipeline(const Trace& trace, const Alignment* reference, Annotations& settings,
                      std::vector<DraftLine>& lines);

// Drafts `microbatches:` as slices where counts and shapes say so, or by trying both other orders on the inputs of
// modules. Does nothing where `order_is_given`.
void propose_microbatches(const Trace& trace, const Alignment& reference, bool order_is_given, Annotations& settings,
                          std::vector<DraftLine>& lines);

// Drafts `loss_scale:` by trying products of axis sizes, and their inverses, on the gradients of activations, which are
// placed as their values are. `main_grads_fit` is true where the optimizer's gradients agree with the reference's
// without a factor.
void propose_loss_scale(const Trace& trace, const Alignment& reference, const std::map<SubjectKey, Decision>& decisions,
                        const PlacementChoices& choices, bool main_grads_fit, Annotations& settings,
                        std::vector<DraftLine>& lines);

}  // namespace ttrace
