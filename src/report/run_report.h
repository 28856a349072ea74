// The outcome of `ttrace run`: a report for each candidate, and the renderings of them all. JSON is a stable interface:
// `ttrace-run/4`, described in src/manual/run.md.
#pragma once

#include <string>
#include <vector>

#include "base/outcome.h"
#include "report/render.h"

namespace ttrace {

struct CandidateReport {
  std::string name, command;
  std::string problem;  // why the candidate could not be checked; if empty, `report` is its outcome
  Report report;

  RunVerdict verdict() const;
};

struct RunReport {
  std::string problem;  // why no candidate could be checked, or empty
  std::vector<CandidateReport> candidates;
  std::vector<std::string> notes;

  // Different if any candidate is; same only if there are candidates and all are the same; else could-not-look.
  RunVerdict verdict() const;
};

// Says the outcome in a sentence: the first error of the first candidate that differs, and its cause.
std::string sentence_of(const RunReport& report);

std::string to_text(const RunReport& report, const TextOptions& options);
std::string to_json(const RunReport& report);
// Renders for the summary page of a CI job (GitHub's Markdown).
std::string to_markdown(const RunReport& report);
// Renders as report/render.h does, of all candidates.
std::string to_github(const RunReport& report);
std::string to_sarif(const RunReport& report);

}  // namespace ttrace
