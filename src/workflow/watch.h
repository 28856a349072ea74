// Does the work of `ttrace watch`: records iterations of a job that has no reference, now and then, and checks each
// against itself while the job goes on.
//
// The job waits for nothing of this. Its ranks learn from files below `output` what to record (schedule.py of the
// collector), and a process of its own checks (`ttrace abft`), one iteration at a time, with less priority:
//
//   watching            is there while the job is watched; without it, ranks record nothing more
//   schedule.json       [[0, 100], [701, 220]]: every 100th iteration, from 701 on every 220th
//   iteration-000100    pieces that wait for their check: ranks record none where two wait
//   wrong-000100        pieces of an iteration that is wrong, with the report of its check in wrong-000100.json
//   unchecked-000100    pieces of the first iteration that could not be checked
//   asked-000100        pieces of the first iteration that is asked about
//   checks.jsonl        a line for each check
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/annotation.h"

namespace ttrace {

struct WatchOptions {
  std::filesystem::path output;  // must not exist, or be empty
  std::int32_t every = 100;
  std::string budget = "2%";  // of the job's time, for recording
  std::size_t seed = 0;       // of the iterations that are drawn
  std::string hook;           // for `sh -c` where an iteration is wrong; empty: none
  AnnotationSource annotations;
  std::vector<std::string> command;
};

// Runs the command and returns the exit code of `ttrace watch`: 1 where an iteration was wrong; else the command's own
// where that is not 0; else 2 where none was checked, one is asked about, or watching ended before the job, which is said; else 0. Throws
// InputError where the options make no sense; then nothing has run.
int watch(const WatchOptions& options);

// Parses `2%` or `0.5%` and returns 0.02 or 0.005. Throws InputError.
double parse_budget(const std::string& text);

}  // namespace ttrace
