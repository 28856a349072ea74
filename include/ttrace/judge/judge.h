// Judges measured differences by allowed tolerances.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/compare/compare.h"
#include "ttrace/report/report.h"
#include "ttrace/tolerance/tolerance.h"

namespace ttrace {

// Which tensors of two alignments belong together, and which have no partner. Coverage is accounted
// for: matched + only_reference + only_candidate = what either side holds.
struct Matching {
  std::vector<TensorPair> pairs;  // in order of identity
  std::vector<Finding> findings;  // missing on one side, shape or dtype mismatch
};
Matching match(const Alignment& reference, const Alignment& candidate);

// The verdict on one compared pair. Without a tolerance file (`tolerance` null) every element must be
// equal; with one, a floating-point tensor that it does not list is `untrusted` unless all bits agree.
Finding judge(const TensorPair& pair, const Difference& difference, const ToleranceFile* tolerance);

}  // namespace ttrace
