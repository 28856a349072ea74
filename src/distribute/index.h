// Reads the index of a trace with all processes of a team: each reads and checks some of the ranks' files, and process
// 0 gets what they say of themselves.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/trace.h"
#include "team/team.h"

namespace ttrace {

// Reads as `read_trace` of one process does, with the same errors. Each process has so many threads.
Trace read_trace(const std::filesystem::path& directory, Team& team, int threads = 0);

// The worker of Work::kReadIndex.
std::string answer_index(std::string_view request);

}  // namespace ttrace
