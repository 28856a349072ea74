// Provenance: what a trace says of how it was made. `ttrace collect` writes all of it; another recorder may write less.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/estimator.h"

namespace ttrace {

// Names the run whose values this run was given in place of its own.
struct RewrittenFrom {
  std::string source;                   // that run's id
  std::string activations, parameters;  // "recorded" or "generated"; empty: its own
  std::optional<std::uint64_t> seed;    // of generated values
  friend bool operator==(const RewrittenFrom&, const RewrittenFrom&) = default;
};

// Says what a run was told to record, in place of all: the options of `ttrace collect`.
struct RecordingSelection {
  std::vector<std::string> only, except;  // patterns of the names of modules and parameters
  std::vector<std::string> kinds;         // by name; empty: all
  std::optional<std::int32_t> depth;      // of the modules whose calls are recorded; absent: any
  bool sketch = false;                    // large tensors as sketches
  std::vector<std::string> whole;         // ... but not those that these patterns fit
  bool no_grad = false;                   // calls of models without gradients, and nothing else
  friend bool operator==(const RecordingSelection&, const RecordingSelection&) = default;
};

// An empty text is not known.
struct Provenance {
  std::string text = "{}";           // the whole JSON object, with all its keys
  std::vector<std::string> command;  // the words of the command
  std::string directory;             // where the command ran
  std::optional<std::string> axes;   // as --axes had them; absent where the framework itself gave them
  std::string started, git_commit, python, torch, device;
  double recording_seconds = 0;
  // The program's own source files that rank 0 had loaded, from the top of their git repository, or from `directory`
  // where there is none.
  std::vector<std::string> program_files;
  // Holds what the program says of how it is parallel: by key of the section `parallelism` of an annotation file, in
  // JSON.
  std::map<std::string, std::string> parallelism;

  std::optional<std::uint64_t> perturb_seed;  // of a perturbed run
  Estimator perturb_at = kDefaultEstimator;   // what was perturbed, in a perturbed run
  std::optional<RewrittenFrom> rewritten;     // absent: the run computed with its own values
  RecordingSelection selection;               // of nothing: all was recorded
};

}  // namespace ttrace
