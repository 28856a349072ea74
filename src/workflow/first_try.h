// Tries the commands of a run file shortly, before anybody waits for a whole run.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/trace.h"
#include "files/run_file.h"

namespace ttrace {

// What came of the first iteration of a command.
struct FirstTry {
  int ranks = 0;  // that recorded it whole
  std::int64_t tensors = 0;
  std::optional<Trace> trace;  // where it was; its files are removed, and stay readable
  std::string problem;         // one line: why it was not recorded; empty: it was
  std::string said;            // the line in which the command itself said what is wrong; empty where there is none
};

// Runs the job's command with the collector, away from the terminal, and stops it after `limit`. `annotations` as in
// `CollectOptions`. Throws InputError where it cannot be started as it is said.
FirstTry try_first_iteration(const Job& job, const AnnotationSource& annotations, std::chrono::seconds limit);

// Says what is to be changed where the command does not run on so many ranks as it should; nothing where it does.
std::optional<std::string> what_to_change(const FirstTry& tried, bool is_reference, std::int64_t ranks);

// Returns the axes to write beside the candidate's command, by the samples that its ranks read; "" where its trace or
// the bytes say how they are arranged, or nothing was recorded.
std::string axes_to_write(const FirstTry& reference, const FirstTry& candidate);

}  // namespace ttrace
