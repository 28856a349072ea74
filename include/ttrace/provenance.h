// What a trace says of its own making. `ttrace collect` writes it; another recorder may leave out what it likes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ttrace/estimator.h"

namespace ttrace {

// Values of another run that this one was given in place of its own.
struct RewrittenFrom {
  std::string source;                   // that run's id
  std::string activations, parameters;  // "recorded", "generated"; empty: its own
  std::optional<std::uint64_t> seed;    // of generated values
  friend bool operator==(const RewrittenFrom&, const RewrittenFrom&) = default;
};

// A text that is empty is not known.
struct Provenance {
  std::string text = "{}";           // the whole JSON object, with what nobody here reads
  std::vector<std::string> command;  // its words
  std::string directory;             // that the command ran in
  std::optional<std::string> axes;   // as --axes had them; empty where the framework itself has told
  std::string started, git_commit, python, torch, device;
  double recording_seconds = 0;

  std::optional<std::uint64_t> perturb_seed;  // of a perturbed run
  Estimator perturb_at = kDefaultEstimator;   // then, what was perturbed
  std::optional<RewrittenFrom> rewritten;     // none: it computed with its own values
};

}  // namespace ttrace
