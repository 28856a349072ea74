// Tells gradients of rows that are the same in all samples, such as a class token behind its positions: whichever of them a
// program goes on with, the values are the same, and what comes back to them comes to others.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/finding.h"
#include "judge/judge.h"

namespace ttrace {

// Lets gradients of activations pass that differ where the reference's values are the same, bit for bit, along the first
// dimension, and whose sums along it are the reference's, where training is right. Says so in `notes`.
void pass_gradients_of_equal_rows(std::span<const TensorPair> pairs, std::vector<Finding>& findings,
                                  std::vector<std::string>& notes);

}  // namespace ttrace
