// Judges measured differences by allowed tolerances.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/outcome.h"
#include "base/waiver.h"
#include "compare/bits.h"
#include "compare/compare.h"
#include "judge/match.h"
#include "tolerance/tolerance.h"

namespace ttrace {

// Limits how far noise may be from noise. What is allowed has been measured, between runs of one program; another order
// of summation makes the same kind of noise, of a size that is not quite the same. The correct configurations of
// tools/laboratory/sweeps differ by at most 0.46 times what is allowed, with norms within 3 % of the reference's.
inline constexpr double kNoiseSpan = 10;

// The verdict on one compared pair. Without a tolerance file (`tolerance` null) every element must be
// equal; with one, a floating-point tensor that it does not list is `untrusted` unless all elements are
// equal. The first of these that applies:
//   no elements                            untrusted, empty
//   NaN or Inf not at the same places      fail, not-finite
//   integers and bool                      exact: pass, or fail (replicas-disagree, integer-differs)
//   zero in the reference, as others of its
//   name are not, and here as large as
//   rounding makes it (`of_zero`)          untrusted, noise
//   copies on several ranks differ by more
//   than allowed                           fail, replicas-disagree
//   no element finite on both sides        untrusted, empty
//   zero on both sides                     untrusted, all-zero
//   every element equal                    pass
//   no tolerance for it                    untrusted, no-tolerance
//   allowed is 1 or more                   untrusted, noise; fail, exceeds-tolerance where that is no noise
//   rel_err above `allowed`                fail, exceeds-tolerance
//   scale, row or element above its own    fail, exceeds-tolerance; `Finding::exceeded` says which
//   else                                   pass
// NaN and Inf at the same places on both sides are left out; the other elements decide, unless most are NaN.
// A value that is noise still has the magnitude of noise, kNoiseSpan: it is no zero where the reference is not.
Finding judge(const TensorPair& pair, const Difference& measured, const ToleranceFile* tolerance);

// Pairs by the candidate's identity, which findings have.
using PairsById = std::map<TensorId, const TensorPair*>;
PairsById index_pairs(std::span<const TensorPair> pairs);

// Makes a finding pass that something beside it has shown to be right.
void let_pass(Finding& finding);

// Judges a pair of `Matching::recomputed` by the same table; where the values differ, the reason is
// `recompute-differs`.
Finding judge_recompute(const TensorPair& pair, const Difference& difference, const ToleranceFile* tolerance);

// Makes a finding about `tensor`; its message is the tensor's identity, a colon and `what`.
Finding finding_about(const LogicalTensor& tensor, Verdict verdict, Reason reason, const std::string& what);

// Returns the candidate ranks that hold the error, sorted: the smallest set that holds 99 % of the squared difference.
// What the other ranks hold is then under a tenth of it in norm.
std::vector<std::int32_t> ranks_holding(const Difference& difference);

// Says what the user accepts of what would otherwise be a failure.
struct Acceptance {
  std::span<const Waiver> waivers = {};
  bool excuses = false;  // what overrides and waivers excuse is no reason to doubt the run
};

// Fills the report's counts, its findings in execution order, its passed findings, and its notes.
void summarize_findings(std::vector<Finding> findings, Report& report);

// Counts the report's findings again, after their verdicts were changed.
void recount(Report& report);

// Moves to `report.waived_findings` what a waiver accepts: all findings about a tensor that a waiver names, if one of
// them is `fail`, `missing` or `no-tolerance`. Of several waivers that name the tensor, the first is reported. Findings
// about ranks are never waived. A tensor that passed is not waived either, so that a waiver cannot be the only reason
// for the verdict `same`.
void apply_waivers(std::span<const Waiver> waivers, std::vector<Finding>& findings, Report& report);

// Holds what is known of the optimizers' steps, beside how their tensors compare (step/judge_steps.h).
struct StepVerdicts {
  bool are_stated = false;        // the candidate says of its optimizers
  std::vector<Finding> findings;  // about wrong steps
  // Updates that are what the run's own gradients and state give, with the reference's options, and parameters that are
  // what the step made. Such a tensor is right if those are that it was computed from.
  std::map<TensorId, std::vector<TensorId>> proved;
  // Holds, for proved updates that exceed their tolerance, how far one element may jump because its gradient is off by
  // what its own tolerance allows, in units of the update (src/step/jumps.h).
  std::map<TensorId, double> jumps;
  // Updates that follow no known rule in either run, or are changed by something else than the step in both, and that
  // no measured tolerance holds against the reference's.
  std::set<TensorId> unheld;
  // Wrong updates of which every rank says that the parameter was changed once more behind the step.
  std::set<TensorId> changed_after;
  // Updates that the candidate does not have, as its parameters change by a step that is no optimizer's of theirs:
  // the sum of the squares of what they have changed by since recording began.
  std::map<TensorId, double> elsewhere;
};

// Judges all pairs, applies the waivers, summarizes the findings, and says what they prove. `differences` has one
// element for each of `matching.pairs`, followed by one for each of `matching.recomputed`. An update, or a parameter
// after it, that is `untrusted` because its tolerance is 1 or more passes where it is proved, and all tensors that it
// was computed from pass or are zero on both sides; so does one that exceeds its tolerance by no more than a jump of
// one element.
//
// Where there are `bits`, one for each of `differences`, a tensor passes by equal bits alone (judge/bits.h).
Report judge_all(const Alignment& reference, const Matching& matching, std::span<const Difference> differences,
                 const ToleranceFile* tolerance, const Acceptance& acceptance = {}, const StepVerdicts& steps = {},
                 std::span<const BitDifference> bits = {});

}  // namespace ttrace
