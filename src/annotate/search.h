// Tries placements: shards are put together in each way that the shapes allow, and held against the
// reference. `align` and `compare` are the judges, the same that a check has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "annotate/hypotheses.h"
#include "ttrace/align/shard_mapping.h"
#include "ttrace/compare/compare.h"

namespace ttrace {

// What came of one hypothesis.
struct Fit {
  std::int64_t misfits = 0;              // tensors that do not fit together, or not into the reference
  std::int64_t tensors = 0;              // compared
  double difference = 0, reference = 0;  // sums of squares; of copies that disagree, the larger difference
  void add(const Difference& measured);
  double error() const;  // of all compared tensors as if they were one
};

struct Hypothesis {
  Placements axes;
  Fit fit;
};

struct Search {
  std::string pattern;
  Kind kind = Kind::kOutput;
  Dtype dtype = Dtype::kFloat32;
  bool in_microbatches = false;
  std::vector<Hypothesis> hypotheses;
};

// What stays the same while hypotheses are tried.
struct Trial {
  const Trace& trace;
  const Annotations& settings;  // parallelism, and rules for what nobody searches
  const Alignment& reference;
};

// Measures every hypothesis of `wanted`. `all` are the searches that there are: a tensor of another one lies
// as that one's first hypothesis says. One alignment of the whole trace for the n-th hypotheses of all.
void try_hypotheses(const Trial& trial, std::span<Search> all, const std::vector<Kind>& wanted);

}  // namespace ttrace
