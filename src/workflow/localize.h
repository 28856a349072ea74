// The work of `ttrace localize`: after a failed check, a second run of the candidate in which every module is given the
// reference's values, and what it says of the roots.
#pragma once

#include <filesystem>
#include <optional>

#include "workflow/check.h"
#include "workflow/collect.h"

namespace ttrace {

// How to collect the second run of the candidate whose check came to `first`: by the command that its trace names, in
// the same directory. `output` is for the caller to say. Nothing where a second run would show nothing more; `reason`
// then says why. Throws InputError where the trace does not name its command.
std::optional<CollectOptions> second_run_of(const CheckOptions& check, const Report& first, std::string& reason);

// Revises the roots of `report`, what `check` came to, by the second run's trace. Throws InputError where it could not
// look.
void add_second_run(Report& report, const CheckOptions& check, const std::filesystem::path& trace);

}  // namespace ttrace
