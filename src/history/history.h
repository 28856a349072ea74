// A history of verdicts: an SQLite file to which every check adds a row, with the largest ratio (rel_err / allowed) of
// each tensor. Other programs may read it; src/history/history.cpp defines its tables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/outcome.h"

namespace ttrace {

// One check. Start, commit and command are those of the candidate's run; texts that its trace does not have are empty.
struct CheckRecord {
  std::int64_t number = 0;  // from 1, in the order in which they were added
  std::string candidate;    // its name in `ttrace run`; empty for a check by itself
  std::string started;      // when the candidate's run started, ISO 8601
  std::string git_commit, command;
  std::string reference_run, candidate_run;  // run ids, the candidate's with the iterations where not all were checked
  bool same = false;
  std::int64_t compared = 0, failed = 0, missing = 0;
  std::string first_wrong;      // `name kind`, or empty
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
  std::string candidate;        // the check's
};

// Adds a check to the file, in one transaction. Makes the file if there is none. Replaces an earlier check of the same
// candidate run against the same reference. Throws InputError when the file cannot be written or is no history.
void add_to_history(const std::filesystem::path& file, CheckRecord check, const Report& report);

// Reads all checks, in order of their numbers. Throws InputError when the file is not there, cannot be read or is no
// history; so does `read_ratios`.
std::vector<CheckRecord> read_checks(const std::filesystem::path& file);
// Reads the ratios of tensors whose name matches `pattern` (as in annotations), or of all if it is empty, sorted by
// name, kind and check.
std::vector<RatioRecord> read_ratios(const std::filesystem::path& file, const std::string& pattern);

// The first check in which a tensor's ratio is more than twice the largest of all earlier checks of the same candidate.
// Candidates are kept apart because each differs from the reference by an amount of its own.
struct Growth {
  std::string name, kind;
  std::string candidate;
  std::int64_t check = 0;
  double before = 0, after = 0;  // the largest earlier ratio, and that check's
};
// Returns a Growth for each tensor and candidate whose ratio grew, the largest `after` first. `ratios` are sorted as
// `read_ratios` does.
std::vector<Growth> growths_of(const std::vector<RatioRecord>& ratios);

// Holds what a file remembers, as a page shows it.
struct History {
  std::string file;  // as the user gave it
  std::vector<CheckRecord> checks;
  std::vector<RatioRecord> ratios;  // of the tensors that are shown, sorted as `read_ratios` does
  std::vector<Growth> growths;      // of all tensors
  std::size_t tensors = 0;          // all of them, shown or not
};

// Reads a history for a page: all checks, and the ratios of at most `most` tensors: those that grew first, then those
// with the largest ratios. A pattern chooses among tensors as for `read_ratios`. Throws what `read_checks` throws.
History read_history(const std::filesystem::path& file, const std::string& pattern, std::size_t most);

}  // namespace ttrace
