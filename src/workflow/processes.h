// The processes that a command works with: this one alone, or those that mpirun or srun has started.
#pragma once

#include <functional>

#include "team/team.h"

namespace ttrace {

// Runs `command` with its team and returns its exit code. Processes but the first do what the first deals to them, and
// return 0: the launcher's exit code is then that of the first. Throws InputError where they cannot work together, and,
// in the first, what `command` throws.
int run_with_team(const std::function<int(Team&)>& command);

}  // namespace ttrace
