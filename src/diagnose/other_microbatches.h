// Tells what cannot be compared because one side cuts a batch into more micro-batches than the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Returns the iterations in which both sides run other numbers of micro-batches, where in some iteration what their
// models are given says that these are the same samples, cut otherwise: the extents of its first dimension add up to the
// same, and none of the candidate's micro-batches has a number of samples that one of the reference's has. Empty where a
// side has dropped one, or runs one too many.
std::map<std::int32_t, CutOfBatch> batches_cut_otherwise(const Evidence& evidence);

// Returns the iterations in which both sides run other numbers of micro-batches, whatever of. Where training is right, a
// program may choose by what it computes how often it calls its model, as a solver does with a step size of its own.
std::map<std::int32_t, CutOfBatch> other_numbers_of_microbatches(const Evidence& evidence);

// Returns the first input of the model of which no sample of the candidate's micro-batches has the bits of one of the
// reference's, in an iteration that both cut otherwise; nothing where some has, or no input can tell.
std::optional<TensorId> input_of_other_samples(const Evidence& evidence, std::int32_t iteration);

}  // namespace ttrace
