// Says how `ttrace run` checks a candidate of its file.
#pragma once

#include <string>

#include "files/run_file.h"
#include "workflow/check.h"
#include "workflow/workspace.h"

namespace ttrace {

// Returns the check of this candidate on this day (as in 2027-01-31). The caller sets `threads` and `pictures`, which
// change nothing that is found.
CheckOptions check_options(const RunFile& file, const Job& job, const Workspace& workspace, const std::string& today);

}  // namespace ttrace
