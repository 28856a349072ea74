// Estimates tolerances (TTrace, section 4.5). The theory is in src/tolerance/estimate.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "compare/compare.h"
#include "tolerance/tolerance.h"

namespace ttrace {

// The measured differences of one run of the reference program from the reference.
struct RunDifferences {
  std::string what;  // for messages: `perturbed run 'runs/perturbed-1'`
  std::vector<TensorPair> pairs;
  std::vector<Difference> differences;  // one per pair
  // One per pair, or empty: true where a token that this run sent to other experts may have changed the tensor.
  std::vector<bool> rerouted;
};

struct EstimateOptions {
  double margin = kDefaultMargin;
  Dtype compute_dtype = Dtype::kFloat32;
  Estimator estimator = kDefaultEstimator;  // what the runs perturbed
  bool by_anchor = false;  // there is one run, and it is not perturbed: the same program in a wider dtype
};

// Tells how far a tensor that the reference recorded may be from the exact one: rel_err, |scale|, element and row of
// Difference.
struct OwnRounding {
  double norm = 0, scale = 0, element = 0, row = 0;
};
using OwnRoundings = std::map<ToleranceKey, OwnRounding>;

// Measures, from the terms that the trace holds, the rounding of the gradients of norms' weights and biases: the
// largest over micro-batches and iterations. Where the terms do not explain a gradient, it has none.
// src/tolerance/own_sums.cpp has the reasons. `wanted`: whether to look at gradients of that name, all where it is empty;
// their terms are read.
OwnRoundings measure_own_sums(const Alignment& reference, const std::function<bool(const std::string&)>& wanted = {});

// Measures the same of the norm of all gradients, from their squares in `differences`, one for each of `pairs`.
OwnRoundings measure_own_norms(std::span<const TensorPair> pairs, std::span<const Difference> differences);

// Estimates the tolerance of every floating-point tensor; integers and bool are compared exactly. `rerun` may be null.
// Fills `tensors`, `coherence`, `notes`, `margin`, `epsilon`, `estimator` and `compute_dtype` of the result. Throws
// InputError for fewer than kLeastPerturbedRuns perturbed runs, for runs that lack some of the tensors, where all runs
// equal the reference in every floating-point element (their perturbations had no effect), for one that is no run of the
// same program (NaN, other initial parameters, responses of another size), and where most of what was measured is
// noise. `own_sums` is of measure_own_sums.
ToleranceFile estimate(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                       const EstimateOptions& options, OwnRoundings own_sums = {});

// Fills the run ids of `file` where one run in a wider dtype stands for the perturbed ones; `rerun` may be null. Throws
// InputError where the anchor is perturbed, no wider than the reference, or was given other values, and as
// identify_runs.
void identify_anchor(const Trace& reference, const Trace& anchor, const Trace* rerun, ToleranceFile& file);

// True where a floating-point tensor of the run is not the reference's to the last bit.
bool differs(const RunDifferences& run);

// Fills the run ids, seeds and the estimator of `file`. Throws InputError when a run is given twice, when the reference
// or the rerun is perturbed, when a perturbed run is not, when two have one seed, and when the runs differ in what was
// perturbed, in the compute dtype, or in the values that they were given (ttrace/rewrite/). `rerun` may be null.
void identify_runs(const Trace& reference, std::span<const Trace> perturbed, const Trace* rerun, ToleranceFile& file);

}  // namespace ttrace
