// Holds a candidate against the reference rounded to the candidate's dtype: `check --rounded-to`.
#pragma once

#include <optional>
#include <string>

#include "base/alignment.h"
#include "base/outcome.h"

namespace ttrace {

// Puts in the place of the reference's tensors that are wider than the dtype `word` ("bfloat16", or "bf16"), and that the
// candidate holds in it, what rounding to nearest makes of them. Returns a note that says of how many. Throws InputError
// where there is none: the option would do nothing.
std::string round_reference(Alignment& reference, const Alignment& candidate, const std::string& word, int threads);

// Returns the name of a dtype that the candidate's tensors at the roots are rounded to, where they are.
std::optional<std::string> told_rounding(const Report& report, const Alignment& reference, const Alignment& candidate);

}  // namespace ttrace
