// Main gradients that were added onto what the iteration before has left in their memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "diagnose/diagnosis.h"

namespace ttrace {

// Returns the candidate's main gradient of the iteration before that of `gradient`; null where there is none to add.
const LogicalTensor* find_left_over(const LogicalTensor& gradient, const Alignment& candidate);

std::string describe_gradient_of(const LogicalTensor& before);  // `the gradient of iteration 0`

// `0.4 times the gradient of iteration 0 is still in it, beside 0.9 times the reference's`; each of them once is not said.
std::string describe_left_over(const LogicalTensor& before, double left, double own);

// What such a gradient lacks, in brackets.
inline constexpr std::string_view kIsThereZeroGrad = "(is there a zero_grad before the backward?)";

// Explains main gradients that nothing else does by what all of an iteration have in common: the same number of times what
// was left in each, beside the reference's, or one number times that. The values of all of them tell the numbers, and so a
// gradient of few values, as a bias has, is explained as well.
void add_left_overs(const Report& report, const Evidence& evidence, std::vector<std::optional<Diagnosis>>& diagnoses);

}  // namespace ttrace
