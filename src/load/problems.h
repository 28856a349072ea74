// What the recorder of a trace told: lines in files beside the ranks' (src/python/ttrace_torch/problems.py). A trace with
// a problem is not what was asked for; a warning is no reason to distrust it. Of these files, others than regular ones
// are left, and of a long one the beginning is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ttrace {

// Returns the lines of `rank-00000.problem`, `rank-00001.problem`, ... in the directory. Those of a run that was split
// are its own: each of its traces is of an iteration that was over.
std::vector<std::string> problems_in(const std::filesystem::path& directory);

// Returns those of `rank-00000.warning` and so on.
std::vector<std::string> warnings_in(const std::filesystem::path& directory);

// Returns what `ttrace collect` says of the end of a job that failed after all was recorded: "the command exited with
// code 3". Empty where it says nothing.
std::string job_failure_in(const std::filesystem::path& directory);

// Throws InputError, which says what the recorder said, where there is a problem: what such a trace holds may be right,
// and yet not be what the job computed.
void require_no_problems(const std::filesystem::path& directory);

}  // namespace ttrace
