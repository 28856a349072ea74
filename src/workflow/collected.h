// Looks at the trace directory of a command, for the progress line and for the summary at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "host/launch.h"

namespace ttrace {

struct Progress {
  int ranks = 0;
  std::uint64_t bytes = 0;
};
Progress progress_of(const std::filesystem::path& directory);

// Shows the warnings of all ranks, each text once, and says where they stand.
void show_warnings(const std::filesystem::path& directory);

// Says whether a run is another one made again: all tensors that both recorded, whole or as a sketch, have the same bits.
struct Repetition {
  std::int64_t compared = 0;  // tensors
  std::string problem;        // one line: what shows that it is not, or that nothing shows that it is; empty: it is
  std::string first;          // the first tensor that shows it
};
// Throws InputError where a trace cannot be read.
Repetition repetition_of(const std::filesystem::path& first, const std::filesystem::path& again);

// Says in one line why `replays`, made in one launch with `first`, cannot stand for runs of the same program; empty: they
// can. Each must be whole and have the tensors of `first`, and the last one, which was not perturbed, its bits.
std::string problem_of_replays(const std::filesystem::path& first, const std::vector<std::filesystem::path>& replays);

// Tells the user on stderr what was collected, and what is wrong with it; returns the exit code of `ttrace collect`.
// After a command that failed, the ranks' files lose their completion marks: such a trace must not look whole. Traces
// of iterations that it had finished keep theirs. `check_follows` as in CollectOptions.
int conclude_collection(const std::filesystem::path& directory, const CommandResult& result, double seconds,
                        bool check_follows);

}  // namespace ttrace
