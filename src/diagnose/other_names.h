// Tells what differs, or is missing, by its name alone: where the two sides share hardly a name, and where names are
// numbers by the order of steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnosis.h"

namespace ttrace {

// Says that the two sides have hardly a name in common; nothing where they have. A module that is missing, or one more,
// leaves most names of the other.
std::optional<std::string> describe_few_shared_names(const Evidence& evidence);

// True where nothing but its name makes the tensor what the other side has, of two sides with hardly a name in common:
// it is missing; or it differs, and is neither a loss nor what enters or leaves the whole model, and no parameter of its
// module begins with the reference's values.
bool rests_on_name(const Finding& finding, const Report& report);

// Returns the name of the reference's tensor whose values the candidate's has in all that is wrong of it, where both are
// of no module, have one shape and nothing but their numbers tells them apart: they begin alike, or the candidate's
// begins with other values than the reference's of that number. Nothing where there is none.
std::optional<std::string> other_of_no_module(const Finding& finding, const Report& report, const Evidence& evidence);

}  // namespace ttrace
