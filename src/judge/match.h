// Finds the tensors of two aligned traces that belong together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "compare/compare.h"
#include "judge/routing.h"

namespace ttrace {

// Every canonical tensor that either side holds, even in part, is counted exactly once: in `pairs` (by its candidate's
// identity), in `findings`, or in `waived`.
struct Matching {
  // Tokens that the two sides sent to different experts. `pairs` leave them out of the experts' tensors, and of all
  // that is computed later with a row for each token.
  std::vector<Reroute> reroutes;
  std::vector<std::shared_ptr<const LogicalTensor>> common_rows;  // owns the tensors without those tokens
  std::set<TensorId> without_rerouted;  // of `pairs`, those with a row for each token, and none for a re-routed one
  std::vector<TensorPair> pairs;        // reference and candidate, in order of the candidate's identity
  // The candidate's recomputed tensors, each paired with its own first forward (as `reference`): a difference from the
  // reference does not tell whether the recomputation is wrong or the forward that it repeats.
  std::vector<TensorPair> recomputed;
  std::vector<Finding> findings;   // the candidate's own; missing or not seen on one side; shape or dtype mismatch
  std::vector<std::string> notes;  // floating dtypes that differ, what is waived, another model size
  std::string partial;             // as in Report
  std::map<MicrobatchKey, std::set<std::int32_t>> padded_shorter;  // as in the candidate's Alignment
  // Tensors that only the reference recomputed, state of an optimizer that one side has, tensors that the annotations
  // (or the numbers in them) call local, and those of modules that one side alone has and that hide nothing.
  std::int64_t waived = 0;
};

// Pairs by identity. A recomputed tensor of the candidate whose reference did not recompute is paired
// with the reference's forward. A tensor with a finding of its own in `candidate` is not reported as
// missing a second time. A parameter's tensor in a narrower dtype than the reference's is a finding, but of the kinds
// `narrower`. Throws InputError when the two have no tensor in common.
Matching match(const Alignment& reference, const Alignment& candidate, const std::set<Kind>& narrower = {});

// Drops the tensors, and the findings about tensors, whose name does not match `pattern` (as in
// annotations). Throws InputError when no name on either side matches.
void keep_only(Alignment& reference, Alignment& candidate, const std::string& pattern);

// Drops the tensors, and the findings about tensors, of other iterations. Throws InputError where a side has none of
// these.
void keep_iterations(Alignment& reference, Alignment& candidate, const std::set<std::int32_t>& iterations);

// Returns the reference's tensor that a candidate's tensor `id` is compared with: the one of the same identity, or else
// the forward of a recomputed one. Null when there is none.
const LogicalTensor* counterpart(const Alignment& reference, const TensorId& id);

}  // namespace ttrace
