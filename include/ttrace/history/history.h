// Verdicts over time: an SQLite file that every check adds a row to, with the largest ratio (rel_err / allowed) of each
// tensor. Other programs may read it; the tables are in src/history/history.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ttrace/outcome.h"

namespace ttrace {

// One check. What ran is the candidate's; all text may be empty where its trace does not say.
struct CheckRecord {
  std::int64_t number = 0;  // from 1, in the order in which they were added
  std::string candidate;    // its name in `ttrace run`; empty for a check by itself
  std::string started;      // of the candidate's run, ISO 8601
  std::string git_commit, command;
  std::string reference_run, candidate_run;  // run ids
  bool same = false;
  std::int64_t compared = 0, failed = 0, missing = 0;
  std::string first_wrong;      // `name kind`; empty: nothing is
  std::optional<double> worst;  // the largest ratio of all tensors
  std::string worst_tensor;     // `name kind`
};

// One tensor in one check.
struct RatioRecord {
  std::int64_t check = 0;  // its number
  std::string name;
  std::string kind;
  std::optional<double> ratio;  // the largest over micro-batches and iterations; none: not measured
  std::string verdict;          // the worst
  std::string candidate;        // of the check
};

// Adds a check to the file, which is made where there is none: all of it, or nothing. A candidate run that it holds
// already, against the same reference, is replaced. Throws InputError when the file cannot be written or is no history.
void add_to_history(const std::filesystem::path& file, CheckRecord check, const Report& report);

// In order of their numbers. Throw InputError when the file is not there, cannot be read or is no history.
std::vector<CheckRecord> read_checks(const std::filesystem::path& file);
// Those whose name matches `pattern` (as in annotations), by name, kind, check. Empty: all.
std::vector<RatioRecord> read_ratios(const std::filesystem::path& file, const std::string& pattern);

// Where a tensor's ratio first grew: the first check with more than twice the largest ratio before it of the same
// candidate. Candidates differ from the reference by different amounts, each its own.
struct Growth {
  std::string name, kind;
  std::string candidate;
  std::int64_t check = 0;
  double before = 0, after = 0;  // the largest earlier ratio, and that check's
};
// One for each tensor and candidate that grew, the largest `after` first.
std::vector<Growth> growths_of(const std::vector<RatioRecord>& ratios);

}  // namespace ttrace
