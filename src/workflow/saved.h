// Reads what commands look at: traces, and what other programs saved (checkpoints, arrays, dumps), which become traces in
// memory. safetensors are read where they lie, and so are large tensors of other checkpoints that Python (`ttrace import`)
// finds whole in their files; the rest it copies into a directory that is gone once it is mapped. A part of a checkpoint is named behind `::`, as in `state.pt::ema`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/trace.h"
#include "team/team.h"

namespace ttrace {

// How saved things are read.
struct SavedOptions {
  std::string python;  // the Python that has the packages of their formats; empty: python3
  int threads = 0;
};

struct ReadRun {
  Trace trace;
  std::string format;  // of what it was made of, now or by `ttrace import`: "checkpoint", ...; empty: it was recorded
};

// Reads one of them. Throws InputError.
Trace read_run(const std::string& source, const SavedOptions& options);

// Reads also a trace that its recorder called not whole: to look at what is there, not to judge it.
Trace read_run_as_it_is(const std::string& source, const SavedOptions& options);

// Reads both sides of a check. Where only one is a trace, or they are of two formats, what was saved holds less by
// design than the other (`NotSeen::everything`). Throws InputError.
struct ReadPair {
  ReadRun reference, candidate;
};
ReadPair read_pair(const std::string& reference, const std::string& candidate, const SavedOptions& options, Team& team);

// Returns the whole numbers of the model's config.json by their keys; none where there is no such file in the folder, or
// beside the file.
std::map<std::string, std::int64_t> model_sizes_of(const std::string& text);

// Returns what a saved thing holds beside what became of it a trace: "3 tensors of other parts, such as optimizer.m".
std::vector<std::string> left_out_of(const Trace& trace);

// True where the trace is of something that another program saved, imported by this command or before.
bool is_imported(const Trace& trace);

}  // namespace ttrace
