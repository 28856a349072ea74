// Renders reports as JUnit XML, as CI servers show it: a case for each tensor name and kind. First those that are wrong
// by themselves, in the order of the root causes, then all others by name. A case that is wrong because of another one
// is skipped, with a reference to that one: a bug is one red test, not one for each tensor in its wake.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/outcome.h"
#include "report/run_report.h"

namespace ttrace {

// Holds what a suite says beside a report.
struct SuiteFacts {
  std::vector<std::pair<std::string, std::string>> properties;  // the runs, their ranks, axes, versions; the tolerance
  std::string timestamp;  // ISO 8601, when the candidate's recording began; empty: not known
  // Holds, by finding, the finding that it follows from (diagnose/root_causes.h); empty where nobody looked.
  std::vector<std::optional<std::size_t>> follows_from;
  std::string text;  // the report for people
};

std::string to_junit(const Report& report, const SuiteFacts& facts);

// Renders one suite for each candidate, with the cases of its check; `facts` has one element for each. A candidate that
// could not be checked is an error; a waived finding is a skipped case.
std::string to_junit(const RunReport& report, const std::vector<SuiteFacts>& facts);

}  // namespace ttrace
