// Judges measured differences by allowed tolerances.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/compare/compare.h"
#include "ttrace/judge/match.h"
#include "ttrace/outcome.h"
#include "ttrace/tolerance/tolerance.h"
#include "ttrace/waiver.h"

namespace ttrace {

// The verdict on one compared pair. Without a tolerance file (`tolerance` null) every element must be
// equal; with one, a floating-point tensor that it does not list is `untrusted` unless all elements are
// equal. The first of these that applies:
//   no elements                            untrusted, empty
//   NaN or Inf not at the same places      fail, not-finite
//   integers and bool                      exact: pass, or fail (replicas-disagree, integer-differs)
//   copies on several ranks differ by more
//   than allowed                           fail, replicas-disagree
//   no element finite on both sides        untrusted, empty
//   zero on both sides                     untrusted, all-zero
//   every element equal                    pass
//   no tolerance for it                    untrusted, no-tolerance
//   allowed is 1 or more                   untrusted, noise
//   rel_err                                pass up to `allowed`, else fail, exceeds-tolerance
// NaN and Inf at the same places on both sides are left out; the other elements decide.
Finding judge(const TensorPair& pair, const Difference& difference, const ToleranceFile* tolerance);

// The same for a pair of `Matching::recomputed`; a value that fails is `recompute-differs`.
Finding judge_recompute(const TensorPair& pair, const Difference& difference, const ToleranceFile* tolerance);

// A finding that says `what` of the tensor, after its identity.
Finding finding_about(const LogicalTensor& tensor, Verdict verdict, Reason reason, const std::string& what);

// The candidate ranks that hold the error: the smallest set that holds 99 % of the squared difference,
// so that what the others hold is under a tenth of it in norm. Sorted.
std::vector<std::int32_t> ranks_holding(const Difference& difference);

// Adds findings up: the report's counts, its findings in execution order, those that passed, notes.
void settle(std::vector<Finding> findings, Report& report);

// Moves to `report.waived_findings` what a waiver (of several, the first) accepts: all findings about a tensor of which
// one is `fail`, `missing` or `no-tolerance`. Findings about ranks are never waived, and neither is what passed: a
// waiver makes no verdict out of nothing.
void set_waived_aside(std::span<const Waiver> waivers, std::vector<Finding>& findings, Report& report);

// Judges all pairs and adds it up: counts, findings in execution order, notes. `differences` are those of
// `matching.pairs`, then of `matching.recomputed`.
Report conclude(const Alignment& reference, const Matching& matching, std::span<const Difference> differences,
                const ToleranceFile* tolerance, std::span<const Waiver> waivers = {});

}  // namespace ttrace
