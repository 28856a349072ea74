// Does the work of `ttrace collect`: runs a command with the collector in every Python process below it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/annotation.h"
#include "base/estimator.h"
#include "base/provenance.h"
#include "base/trace.h"
#include "host/launch.h"
#include "workflow/rewriting.h"

namespace ttrace {

// The recorded iterations once more, in the same launch of the command (replays.py of the collector). A program may not
// let that be: whether there is such a trace, `problem_of_replays` (workflow/collected.h) says.
struct ReplayedRun {
  std::filesystem::path output;  // of its trace, as CollectOptions has it
  std::optional<std::uint64_t> perturb;
};

struct CollectOptions {
  std::filesystem::path output;  // of the trace; must not exist, or be empty
  AnnotationSource annotations;
  // Empty: 0, and at most two further ones while gradients of a family of parameters are zero.
  std::vector<std::int32_t> iterations;
  std::size_t then = 0;        // light iterations behind the last of these: FurtherIterations (base/trace.h)
  bool split = false;          // into a trace for each iteration: `list_iterations` (load/trace_reader.h)
  std::string axes;            // as in parse_mesh; empty: the collector finds out
  bool check_follows = false;  // which asks for them where it must
  std::optional<std::uint64_t> perturb;
  Estimator perturb_at = kDefaultEstimator;
  RewriteOptions rewrite;
  RecordingSelection selection;  // of nothing: all is recorded
  std::filesystem::path again;   // a trace of an earlier run, whose tensors this one must make once more; empty: none
  std::vector<std::string> command;
  std::filesystem::path working_directory;  // of the command; empty: this process's
  bool stdout_to_stderr = false;            // of the command
  std::chrono::seconds timeout{0};          // of the command; 0: none
  // Of a run that is watched: what it records stands in files (watch.h), and not in `iterations`. None: of all others.
  std::optional<std::uint64_t> watch_seed = {};
  std::vector<ReplayedRun> replays = {};  // the last one is not perturbed: it tells what the others are worth
};

// Runs the command and returns the exit code of `ttrace collect`: the command's own where that is not 0
// (128 + n when signal n killed it, 127 when it was not found and 126 when it could not be run, as with env and
// nice); else 2 where the trace is not what was asked for, with the reason on stderr; else 0.
// Throws InputError where the options make no sense; then nothing has run.
int collect(const CollectOptions& options);

// Makes the directory of a trace. Throws InputError where it holds something.
void make_output(const std::filesystem::path& output);

// Returns how to launch the command so that what it starts records, into a directory that is there. What its ranks read
// is written below `scratch`, and must stay until the command has ended. Throws InputError.
Launch recording_launch(const CollectOptions& options, const std::filesystem::path& scratch);

// What a trace holds, for a run that is to record the same.
struct RecordedIterations {
  std::vector<std::int32_t> whole;
  std::size_t then = 0;  // light ones behind them
};
RecordedIterations iterations_of(const Trace& trace);

// Collects all runs, at most `jobs` at a time. With more than one at a time, what a command prints goes to OUTPUT.log,
// and is shown where it fails, and each has a MASTER_PORT of its own in its environment, and PET_MASTER_PORT for torchrun.
// At the first that fails, or that `require` refuses by an InputError, the others are stopped, and InputError is thrown.
void collect_all(const std::vector<CollectOptions>& runs, std::size_t jobs,
                 const std::function<void(const CollectOptions&)>& require = {});

// Collects all runs side by side, at most `jobs` at a time, whichever of them fail, and returns the exit code of each
// as `collect` does, with logs and ports as those of `collect_all`. `on_collected` is called, and must not throw, where
// one has ended with 0. After a signal for this process (`interrupted_by`) no further one is started; the code of those
// is -1.
std::vector<int> collect_each(const std::vector<CollectOptions>& runs, std::size_t jobs,
                              const std::function<void(std::size_t)>& on_collected);

// Parses `0,2,5-7`, sorted and each once. Throws InputError, about `where`.
std::vector<std::int32_t> parse_iterations(const std::string& text, const std::string& where = "--iterations");

// Parses a list of kinds, `input,output`, in the order of the enumerators. The state of an optimizer is not chosen by
// itself: it is recorded with `param_delta`. Throws InputError.
std::vector<std::string> parse_kinds(const std::string& text);

// Checks the text of the axes. Whether they fit the number of ranks is left to the ranks. Throws InputError.
void check_axes(const std::string& axes, const std::string& where = "--axes");

}  // namespace ttrace
