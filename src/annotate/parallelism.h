// Drafts the block `parallelism:`. Each function takes what is known so far as `settings`, adds what it finds to it and
// to `lines`, and does not change what `settings` already says.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "annotate/decision.h"
#include "annotate/observation.h"

namespace ttrace {

// Drafts `pipeline:` where more than one stage uses the same layer numbers, so that they are local to the stage.
// `reference` may be null.
void propose_pipeline(const Trace& trace, const Alignment* reference, Annotations& settings,
                      std::vector<DraftLine>& lines);

// Drafts `experts:` where ranks number experts of their own from 0. It is certain where these begin with the bytes of
// the reference's.
void propose_experts(const Trace& trace, const Alignment& reference, Annotations& settings,
                     std::vector<DraftLine>& lines);

// Finds out the order of micro-batches: slices where counts and shapes say so, else by trying both other orders on the
// inputs of modules. Drafts `microbatches:` where it is not the order that holds without it. Does nothing where
// `order_is_given`.
void propose_microbatches(const Trace& trace, const Alignment& reference, bool order_is_given, Annotations& settings,
                          std::vector<DraftLine>& lines);

// Drafts `tied:` for parameters that stages hold under names which the reference lacks. `reference` may be null.
void propose_ties(const Trace& trace, const Alignment* reference, Annotations& settings, std::vector<DraftLine>& lines);

// Finds the factor of activation gradients, which are placed as their values are, by trying products of axis sizes and
// their inverses. `main_grads_fit` is true where the optimizer's gradients agree with the reference's without a factor.
// Returns nothing where `settings` have a factor, or no gradient tells. Only a factor that is certain is added to
// `settings`: by another one, what a bug did to gradients would look right.
std::optional<LossScaleObservation> propose_loss_scale(const Trace& trace, const Alignment& reference,
                                                       const std::map<SubjectKey, Decision>& decisions,
                                                       const PlacementChoices& choices, bool main_grads_fit,
                                                       Annotations& settings);

}  // namespace ttrace
