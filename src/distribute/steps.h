// Computes optimizers' steps again with all processes of a team (step/step.h).
#pragma once

#include <string>
#include <string_view>

#include "distribute/recorded.h"
#include "step/step.h"
#include "team/team.h"

namespace ttrace {

// Makes a Replay for `check_steps`: the same bits for any number of processes. The team must outlive it.
Replay replay_with(Team& team, int threads);

// The worker of Work::kReplaySteps.
std::string answer_steps(std::string_view request, SharedFiles& files);

}  // namespace ttrace
