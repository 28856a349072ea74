// The loss that backward starts from: which outputs are it, and the factor that it and the gradients were multiplied
// by.
//
// A program that divides the loss by the micro-batches of a rank, and not by all, has a loss that is larger than the
// reference's by the number of the ranks, and so are all gradients. The annotations declare that factor for what the
// collector calls `loss`, the number on which `backward` was called. Where a module returns this very number, its
// output has the factor as well, and the gradient that arrives there is 1 on both sides: it has none.
#pragma once

#include "identify/identity.h"

namespace ttrace {

// Sets `loss` of the groups that are the loss, or the gradient with respect to it. An output is the loss where it has
// the bits of the scalar `loss` of its micro-batch, in the reference and on every rank. Where the ranks hold slices of
// the batch, so is any output of one floating-point number, other on each rank, of the model itself, or of a module
// outside of it: it is computed from the slice. So is a module's input or output of one number that the ranks have each
// of its own. Such numbers that add up to the reference's, and are not what `backward` is called on, are terms of a sum,
// and have no factor: those of a criterion that sums over samples.
void find_losses(Grouping& grouping, const RankTable& table, const ModelLayout& layout);

// What the tensor was multiplied by: the declared loss scale, or 1; and by the number of terms, where it is their mean.
double scale_of(const ResolvedAnnotations& annotations, const Microbatches& microbatches, const TensorId& id,
                const TensorPlacement& placement, LossRole role);

}  // namespace ttrace
