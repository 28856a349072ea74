// Which tensors of two aligned traces belong together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/compare/compare.h"
#include "ttrace/judge/routing.h"

namespace ttrace {

// Coverage is accounted for. Every canonical tensor that either side holds, even in part, is in exactly
// one of: `pairs`, by its candidate's identity; `findings`; the `waived`.
struct Matching {
  // Of tokens that a router has sent to experts, `pairs` hold those that both sides sent there.
  std::vector<Reroute> reroutes;
  std::vector<std::shared_ptr<const LogicalTensor>> common_rows;  // that some of the pairs point to
  std::vector<TensorPair> pairs;  // reference and candidate, in order of the candidate's identity
  // A recomputed forward against the reference's says little about the recomputation, since both may be
  // wrong alike; so it is also held against the candidate's own first forward (here `reference`).
  std::vector<TensorPair> recomputed;
  std::vector<Finding> findings;   // the candidate's own; missing on one side; shape or dtype mismatch
  std::vector<std::string> notes;  // floating dtypes that differ, what is waived, another model size
  // Recomputed in the reference only, when the forward tells as much; declared local.
  std::int64_t waived = 0;
};

// Pairs by identity. A recomputed tensor of the candidate whose reference did not recompute is paired
// with the reference's forward. A tensor with a finding of its own in `candidate` is not reported as
// missing a second time. Throws InputError when the two have no tensor in common.
Matching match(const Alignment& reference, const Alignment& candidate);

// Drops the tensors, and the findings about tensors, whose name does not match `pattern` (as in
// annotations). Throws InputError when neither side has one that does.
void keep_only(Alignment& reference, Alignment& candidate, const std::string& pattern);

// The tensor of the reference that `id` stands for: its own identity, or the forward of a recomputed
// one; null when there is none.
const LogicalTensor* counterpart(const Alignment& reference, const TensorId& id);

}  // namespace ttrace
