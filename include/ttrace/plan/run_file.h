// What `ttrace.yaml` says (ttrace/load/run_file.h has its grammar), and which candidates it asks for.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ttrace/estimator.h"
#include "ttrace/plan/expression.h"
#include "ttrace/waiver.h"

namespace ttrace {

// Something to run and record.
struct Job {
  std::string name;
  std::vector<std::string> command;
  std::string axes;                 // as in parse_mesh, or empty
  std::vector<std::string> inputs;  // files that it is made of; empty: what git knows
  int line = 0;                     // in the file
};

// A job with braces in its name, command, axes and inputs, for each combination of the matrix where all conditions
// hold.
struct CandidateRule {
  Job job;
  std::vector<std::pair<std::string, std::vector<PlanValue>>> matrix;  // in the order written
  std::vector<std::string> where;
};

struct RunFile {
  std::string path;
  Job reference;
  std::vector<CandidateRule> candidates;
  std::string annotations;       // a file, or empty
  std::string iterations = "0";  // as for collect
  std::uint64_t seeds = 0;       // number of perturbed runs
  Estimator estimator = kDefaultEstimator;
  double margin = 0;
  std::vector<std::string> environment;  // names of variables that decide what is computed
  bool localize = true;                  // a second run of a candidate that differs
  std::vector<Waiver> waivers;
};

// A line for a shell: {"/bin/sh", "-c", line}.
std::vector<std::string> shell_command(const std::string& line);

// The command without its shell, where that would only split the line at spaces: signals and exit codes are then the
// command's own. Any other stays as it is.
std::vector<std::string> without_needless_shell(const std::vector<std::string>& command);

// The candidates, the last axis of a matrix fastest. Throws InputError (`file:line`) for an expression that makes no
// sense, a matrix with more than 10,000 combinations or none that fits, names that occur twice and those that are no
// file names.
std::vector<Job> expand(const RunFile& file);

// The waivers that speak of this candidate and hold on this day (as in 2027-01-31).
std::vector<Waiver> waivers_for(const RunFile& file, const std::string& candidate, const std::string& today);

// One line for each waiver that has expired, and for each that speaks of candidates that were all checked but waived
// nothing. `used` has the lines of those that did.
std::vector<std::string> waiver_remarks(const RunFile& file, const std::set<int>& used,
                                        const std::set<std::string>& checked, const std::string& today);

}  // namespace ttrace
