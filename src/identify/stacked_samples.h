// The samples of tensors that hold several blocks of the batch, one behind the other: the crops or views of each sample,
// or what is real and what is made.
//
// A length that is a multiple of the number of samples does not say whether the rows of a sample lie together, as its
// patches do, or one in each block. The rows of what modules are given say it.
#pragma once

#include <map>

#include "identify/samples.h"

namespace ttrace {

// Adds to `orders.stacked` the lengths of which an input of some module, or what a model returns, tells that they are blocks of samples that lie
// in the order that is told: on more ranks its rows are then the reference's, bit for bit or but for rounding, than with
// the rows of a sample together. Of several tensors of one length, the first that tells.
void add_stacked_orders(const std::map<TensorId, SlicedInput>& tensors, SampleOrders& orders);

}  // namespace ttrace
