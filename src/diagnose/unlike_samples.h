// Tells ranks that compute on parts of the same parameters, and were given other samples of the batch each: a sampler that
// takes the rank among all for the rank along dp.
#pragma once

#include <string>

#include "diagnose/diagnosis.h"

namespace ttrace {

// True for an input of a model whose samples lie along tp, as shapes and bytes alone say, where tp splits parameters, as
// the program or a rule says.
bool is_dealt_along_tensor_axis(const TensorId& input, const Evidence& evidence);

// True for an input of a model of which the ranks along tp have copies, where tp splits parameters, as the program or a
// rule says: what one of them has in another order is put together with what others compute of the same.
bool is_copied_along_tensor_axis(const TensorId& input, const Evidence& evidence);

// "the ranks along tp were given other samples each ((model):input_ids), ..." of an iteration; empty where they were not.
std::string describe_samples_along_tensor_axis(const Evidence& evidence, std::int32_t iteration);

}  // namespace ttrace
