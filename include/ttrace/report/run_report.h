// The outcome of `ttrace run`, a report for each candidate, and its renderings. JSON is a stable interface:
// `ttrace-run/2`, described in README.md.
#pragma once

#include <string>
#include <vector>

#include "ttrace/outcome.h"

namespace ttrace {

struct CandidateReport {
  std::string name, command;
  std::string problem;  // why nobody could look; empty: the report tells
  Report report;

  RunVerdict verdict() const;
};

struct RunReport {
  std::string problem;  // why no candidate could be looked at, or empty
  std::vector<CandidateReport> candidates;
  std::vector<std::string> notes;

  // Different where one candidate is; same only where all are, and there is one.
  RunVerdict verdict() const;
};

// The outcome in a sentence: what is wrong first in the first candidate that differs, and why.
std::string sentence_of(const RunReport& report);

std::string to_text(const RunReport& report);
std::string to_json(const RunReport& report);
// One suite per candidate, with the cases of a check's; what could not be looked at is an error, what is waived is
// skipped.
std::string to_junit(const RunReport& report);
// For a CI's summary page (GitHub's Markdown).
std::string to_markdown(const RunReport& report);

}  // namespace ttrace
