// The content of `ttrace.yaml` (files/read_run_file.h has its grammar), and the candidates that it asks for.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/estimator.h"
#include "base/waiver.h"
#include "files/job_matrix.h"

namespace ttrace {

// A command to run and record.
struct Job {
  std::string name;
  std::vector<std::string> command;
  std::string axes;                     // as in parse_mesh, or empty
  std::vector<std::string> inputs;      // files that it is made of; empty: all that git knows
  std::string annotations;              // in place of the file's and its parameters; empty: those
  std::string tolerance;                // a tolerance file in place of the estimated one; empty: that
  std::vector<std::string> parameters;  // of the annotations, `NAME=VALUE`, beside those of the file
  std::chrono::seconds timeout{0};      // of the command; 0: none
  int line = 0;                         // in the file
};

// The name that stands for the product of the sizes in a candidate's axes: the number of its ranks.
inline constexpr const char* kRanksName = "ranks";

// A job for each combination of the matrix, with its values in place of `{name}` in name, command, axes, inputs,
// annotations, tolerance and parameters. Where there are axes, `{ranks}` may be used too, but in the axes themselves.
struct CandidateRule {
  Job job;
  JobMatrix matrix;
};

struct RunFile {
  std::string path;
  Job reference;
  std::vector<CandidateRule> candidates;
  AnnotationSource annotations;  // of the candidates alone where there is a correspondence
  std::string correspondence;    // as for check; empty: the candidates have the reference's names
  std::string iterations;        // as for collect; empty: as collect has it by default, the candidates as the reference
  std::size_t then = 2;          // light iterations behind these, as for collect
  std::uint64_t seeds = 0;       // number of perturbed runs
  Estimator estimator = kDefaultEstimator;
  double margin = 0;
  std::vector<std::string> environment;  // names of variables that decide what is computed
  bool localize = true;                  // a second run of a candidate that differs
  std::vector<Waiver> waivers;
  bool accept_overrides = false;  // of the tolerance file, and waivers, however much they excuse
};

// The farthest day at which a waiver may expire: somebody must look at it again.
inline constexpr int kLongestWaiverDays = 366;

// Returns the command that runs a line in a shell: {"/bin/sh", "-c", line}.
std::vector<std::string> shell_command(const std::string& line);

// Removes the shell from a command where the shell would only split the line at spaces: signals then reach the command
// itself, while Debian's sh would stay between. Any other command is returned as it is.
std::vector<std::string> without_needless_shell(const std::vector<std::string>& command);

// Returns the candidates, in the order of combinations_of. Throws InputError (`file:line`) as that and `substitute` do,
// for a value of `include` that nothing uses, and for names of candidates that occur twice or are no file names.
std::vector<Job> candidate_jobs(const RunFile& file);

// Returns the annotations that this job is checked with: those of the file, with the job's parameters.
AnnotationSource annotations_for(const RunFile& file, const Job& job);

// Returns the annotations of the reference: kNoAnnotations where it has names of its own.
AnnotationSource annotations_of_reference(const RunFile& file);

// Returns the waivers that apply to this candidate and have not expired on this day (as in 2027-01-31).
std::vector<Waiver> waivers_for(const RunFile& file, const std::string& candidate, const std::string& today);

// Throws InputError for a waiver that matches every tensor's name, or that expires more than kLongestWaiverDays after
// this day, unless the file accepts overrides.
void require_modest_waivers(const RunFile& file, const std::string& today);

// Returns a line for each waiver that has expired, and for each that waived nothing although all candidates that it
// applies to were checked. `used` has the lines of the waivers that waived something.
std::vector<std::string> waiver_remarks(const RunFile& file, const std::set<int>& used,
                                        const std::set<std::string>& checked, const std::string& today);

}  // namespace ttrace
