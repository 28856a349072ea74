// Tolerances say what a tensor may differ by, as estimated from perturbed runs of the reference. A Difference is
// measured; a Tolerance is allowed. All thresholds of a comparison are here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "base/estimator.h"
#include "base/finding.h"
#include "base/trace.h"
#include "compare/compare.h"
#include "tolerance/coherence.h"
#include "tolerance/update_tolerance.h"

namespace ttrace {

// Says what a statistic beside the norm may be. src/tolerance/statistics.cpp has the rules.
struct StatisticTolerance {
  std::vector<double> samples;  // of each perturbed run, that of the largest magnitude; signed where it is the scale
  std::optional<double> rerun;  // the same of the unperturbed rerun
  double estimate = 0;          // of the scale the spread, of the others the largest, over the tensor's group
  std::int64_t responses = 0;   // how many of them the estimate is made of
  double floor = 0;             // derived from dtypes, sizes and the reference's own sums
  double allowed = 0;           // of its magnitude: `factor_of` times max(estimate, floor)
};

struct Tolerance {
  std::vector<double> samples;  // rel_err of each perturbed run, max over micro-batches
  std::optional<double> rerun;  // rel_err of the unperturbed rerun: the run's own noise
  double estimate = 0;          // max of the above
  double floor = 0;
  double allowed = 0;                                  // margin * max(estimate, floor)
  std::map<Statistic, StatisticTolerance> statistics;  // those beside the norm; empty where the norm sees as much
  std::optional<double> light = {};                    // as `estimate`, of light iterations; none: it is in none
  std::optional<double> of_zero = {};  // the largest norm of those of any run that are zero in the reference, as others
                                       // of the name are not; none: there are none
};

// What light iterations are allowed, times what others are. Errors grow from step to step, in each run in its own way:
// three perturbed runs tell how large they become, and not how large at most. What a wrong step does is larger still.
inline constexpr double kLightSlack = 10;

struct ToleranceOverride {
  std::string pattern;  // as in annotations
  std::optional<Kind> kind;
  double allowed = 0;
  std::string reason;  // for the file's readers; required
  int line = 0;        // in the file, for messages
};

// The least number of perturbed runs: the largest response of fewer is a matter of luck.
inline constexpr std::size_t kLeastPerturbedRuns = 3;

struct ToleranceFile {
  std::string path;
  std::string reference_run;     // run id of the reference; `require_fits` refuses any other
  std::string reference_digest;  // of what it holds, as `digest_of` gives it; the same
  std::vector<std::string> perturbed_runs;
  std::vector<std::uint64_t> seeds;  // one per perturbed run
  std::optional<std::string> rerun;
  Estimator estimator = kDefaultEstimator;
  std::string compute_dtype;
  double epsilon = 0;  // of the compute dtype: the size of the perturbation
  double margin = 0;
  std::vector<std::string> notes;  // for people: how the runs behaved
  bool is_sealed = true;           // false: a file that nothing says was measured (files/tolerance_seal.h)
  std::string unmeasured;          // of tolerances that no runs were made for, a sentence that says so; empty: measured
  std::vector<ToleranceOverride> overrides;
  std::map<ToleranceKey, Tolerance> tensors;
  CoherenceTolerances coherence;
  UpdateTolerances updates;
  OptionTolerances options;
};

// True where one run in a wider dtype stands for the perturbed runs: it has no seed.
inline bool is_by_anchor(const ToleranceFile& file) { return file.perturbed_runs.size() == 1 && file.seeds.empty(); }

// The verdict on a correct run is made to be a false alarm, by chance, once in a thousand runs or less: a run of 50,000
// tests (10,000 to 15,000 tensors, of up to four statistics each, and a hundred groups of them) at kTestLevel has one
// with probability 5e-4, and 50 tensors of few elements, which are held to kFewLevel, with 5e-4 more. What is no chance
// (a parallel program rounds more often than the runs that the tolerances come from) the margin is for.
inline constexpr double kTestLevel = 1e-8;
inline constexpr double kFewLevel = 1e-5;

// Returns what the largest of `estimate` and `floor` is multiplied by: of the scale, what Student's t with `responses`
// degrees of freedom exceeds in magnitude with probability kTestLevel; of the others twice the margin.
double factor_of(Statistic statistic, std::int64_t responses, double margin);

// Holds the statistics beside the norm against `tolerance`, in the order of their enumerators.
std::vector<JudgedStatistic> measure_statistics(const Difference& difference, const Tolerance& tolerance);

// Says what a tensor may differ by, and where that comes from.
struct Allowance {
  std::optional<double> allowed;           // the last override that matches, or else the tensor's own entry; or neither
  std::optional<double> estimated;         // the tensor's own entry, whatever the overrides say
  std::optional<std::size_t> by_override;  // index of that override
  const Tolerance* tolerance = nullptr;    // the tensor's own entry, where no override replaces it
};
Allowance allowance_for(const ToleranceFile& file, const TensorId& id);
std::optional<double> allowed_for(const ToleranceFile& file, const TensorId& id);

// Returns what a tensor may differ by where the program chooses as the reference does, if rounding decides a choice of it,
// as of which of equal scores are the largest: some perturbed runs have moved the tensor by 1 % or more, and a thousand
// times as far as the others. A mistake is hidden by what the others allow.
std::optional<double> allowed_without_choice(const Tolerance& tolerance, double margin);

// Throws InputError when the file was estimated from another reference than this trace, whose digest is `digest`, from
// the same run with other data, or in another compute dtype, or from rewritten runs while the candidate was not
// rewritten. Such tolerances say nothing about the comparison.
void require_fits(const ToleranceFile& file, const Trace& reference, const std::string& digest, const Trace& candidate);

// Describes what the reference holds of one kind and name.
struct StoredTensor {
  Dtype dtype = Dtype::kFloat32;        // of several tensors of the name, the coarsest
  std::int64_t elements = 0, rows = 0;  // ... the fewest
  std::int64_t terms = 0;               // ... the most that a sum over its rows, or over one of them, can have
  bool routed = false;                  // of tokens that a router chose, of which two runs may share few
};
using StoredTensors = std::map<ToleranceKey, StoredTensor>;
StoredTensors stored_tensors(const Alignment& reference);
StoredTensor stored_tensor(const LogicalTensor& tensor);  // by itself
void add_stored(const TensorId& id, const StoredTensor& tensor, StoredTensors& stored);

// Says whether tensors like that have a tolerance of this statistic: the norm of few elements sees as much as others.
bool is_tested(Statistic statistic, const StoredTensor& tensor);

// Throws InputError where a tensor of the file has no tolerance of a statistic that is tested, or a group of tensors
// none of its coherence. Without it, what only that statistic sees would pass.
void require_statistics(const ToleranceFile& file, const StoredTensors& tensors);
void require_coherence(const ToleranceFile& file, const Alignment& reference);

// Throws InputError where a tensor's floor is larger than a rounding step of the dtype that computes or stores it, than
// what few samples say of few elements, than what a gradient's sum over tokens can round, and than what a loss that
// crosses zero may be off by (kMostOfRemainder), and than what `-t default` allows the deepest, and it is no optimizer's
// step: nothing estimates such a floor.
void require_plausible_floors(const ToleranceFile& file, const StoredTensors& tensors);

// Bounds `of_zero` by the largest norm that the reference's tensors of the name have: what rounding makes of zero is no
// larger than what is no zero, whatever a file says. `differences` has one element for each of `pairs`.
void bound_roundings_of_zero(std::span<const TensorPair> pairs, std::span<const Difference> differences,
                             ToleranceFile& file);

// Throws InputError for an override that matches every name, or that allows 1 or more and so any value.
void require_modest_overrides(const ToleranceFile& file);

// Returns a note for each override that matches none of the tensors `(kind, name)`.
std::vector<std::string> unused_overrides(const ToleranceFile& file, const std::set<ToleranceKey>& tensors);

}  // namespace ttrace
