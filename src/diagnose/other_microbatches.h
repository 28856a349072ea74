// Tells what cannot be compared because one side cuts a batch into more micro-batches than the other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

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

// Says that a model is given more or fewer samples in the iteration than the reference's: "the candidate's model is given
// 32 samples in the iteration, and the reference's 16"; and of fewer, whether all ranks were given the same. Empty where
// it is not, or nothing tells.
std::string describe_other_batch(const Evidence& evidence, std::int32_t iteration);

// Samples of the candidate's micro-batches, of an input of its model, that have the bits of none of the reference's.
struct OtherSamples {
  TensorId input;
  std::size_t others = 0, all = 0;
  // "3 of the 16 samples that its model is given ((model)) have the bits of none of the reference's: ..."
  std::string sentence() const;
};

// Returns the first input with such samples, in an iteration that both cut otherwise; nothing where there is none.
std::optional<OtherSamples> other_samples(const Evidence& evidence, std::int32_t iteration);

}  // namespace ttrace
