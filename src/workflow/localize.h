// Does the work of `ttrace localize`: after a failed check it plans a second run of the candidate, in which every
// module is given the reference's values, and revises the root causes by its result.
#pragma once

#include <filesystem>
#include <optional>

#include "workflow/check.h"
#include "workflow/collect.h"

namespace ttrace {

// Returns how to collect the second run of a candidate after the check that gave `first`: by the command that its trace
// names, if any, in the same directory: the caller runs it only where the user has said so. The caller sets `output`.
// Returns nothing where a second run would show nothing more; `reason` then says why.
std::optional<CollectOptions> second_run_options(const CheckOptions& check, const Report& first, std::string& reason);

// Revises the root causes of `report`, the result of `check`, by the trace of the second run. Throws InputError where
// that cannot be checked.
void add_second_run(Report& report, const CheckOptions& check, const std::filesystem::path& trace);

}  // namespace ttrace
