// Tells calls of modules that one side makes and the other does not, where both call the module and training is right: a
// module that is called once for each piece of a batch, or of a loop whose length a program chooses. Which call of the one
// side is which of the other's is not known then.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/outcome.h"
#include "diagnose/diagnosis.h"

namespace ttrace {

// Returns the wrong findings, by index, that are of such calls, and of the others of these modules. Only of iterations up to
// which what steps take and make is right: what is computed in a further call, or not, harms nothing there. A call of
// which a side has something, such as the output, is not lacking there.
std::vector<std::size_t> find_further_calls(const Report& report, const Evidence& evidence);

// "encoder.bn#1 input, ...: in iteration 0 the reference has encoder.bn 4 times, and the candidate once. Nothing says ..."
std::string describe_further_calls(const Finding& finding, const Evidence& evidence);

}  // namespace ttrace
