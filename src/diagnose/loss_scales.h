// Tells a loss scale that nobody has said from an error: where what steps take of the gradients is right, a loss and its
// gradients may be any multiple on the way there.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "diagnose/diagnosis.h"

namespace ttrace {

// Returns the failed findings, by index, that a loss scale explains: of a micro-batch the gradients of parameters, and
// of activations of more than one element, if all that are wrong are the reference's times one number, an integer or one
// over it, and with them the numbers of the micro-batch (its loss, and outputs of one element) that are the same multiple; or
// these numbers alone, where no other gradient is wrong than theirs, by the inverse multiple. Some gradients may be right
// where the numbers are: a backward adds up what all ranks send, and the ranks take the mean afterwards. Presumes that what the
// steps take and make is right.
std::vector<std::size_t> find_scaled(const Report& report);

// Returns the integer, or one over it, that the candidate's tensor is the reference's times; 1 where it is none.
double whole_factor_of(const Finding& finding);

// Holds the factor by which the loss and its gradients may be scaled, which a check that presumes it tells.
struct PossibleLossScale {
  std::string factor;                    // as annotations have it
  std::set<MicrobatchKey> microbatches;  // that have it; empty: all
  bool may_explain_all = false;          // else it holds only where the run is different with it, too
};

// Returns the factor where nothing is asked of the run but the loss scale: an axis of that size, or a number of the
// program's own (a scaler's, or `1` where the program says another scale); of some micro-batches alone where gradients
// of others are right, or the reference's steps take nothing of theirs: what takes gradients by itself need not scale its
// loss as the rest does. An axis, or `1`, also where a loss that is such a multiple is wrong first, or one of another
// number whose gradients are, unless steps take such multiples, or such a gradient where no loss was recorded and most
// steps take right ones. But along an axis of samples, of which the program says nothing, ranks have the mean of their own,
// and what reduces gradients is to divide. It may explain all that is wrong if most gradients that steps take are right, or
// steps undo the multiple. It holds where a check that presumes it finds the run same, or less that is asked or wrong.
std::optional<PossibleLossScale> possible_loss_scale(const Report& report, const Evidence& evidence);

// Returns the gradients before a step, by index, that are a whole multiple of the reference's, of parameters that no
// optimizer of the candidate has: the program steps with other tensors, such as its ranks' shards, which it may divide.
// Some parameter of such a gradient is right behind its step; an optimizer that takes no notice of how large gradients
// are, as Adam does, hides a multiple that nobody divides.
std::vector<std::size_t> find_divided_in_step(const Report& report, const Evidence& evidence);

// Returns the line of annotations that says the factor between the tensor as it was recorded and the reference's.
std::string loss_scale_line(const Finding& finding, const Evidence& evidence);

// True where the scaled finding is of a number, and gradients are right as they are: another loss scale would make these
// wrong.
bool is_of_numbers_alone(const Finding& finding, const Report& report);

// True where the scaled finding is of a gradient, and others of its micro-batch are right.
bool is_of_some_alone(const Finding& finding, const Report& report);

// Says that a loss scale may be what is wrong first: a loss that is a whole multiple, as some of its gradients are, of a
// run that is wrong elsewhere, too.
std::optional<std::string> describe_possible_scale(const Report& report, const Evidence& evidence);

}  // namespace ttrace
