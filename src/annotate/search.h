// Tries placements: puts shards together in each way that the shapes allow and measures how far the result is from the
// reference, with the `align` and `compare` of a check.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "annotate/hypotheses.h"
#include "base/alignment.h"
#include "compare/compare.h"

namespace ttrace {

// Tells how well the tensors of a search agree with the reference under one hypothesis.
struct Fit {
  std::int64_t misfits = 0;              // tensors whose shards do not make up one of the reference's shape
  std::int64_t tensors = 0;              // number of tensors that were compared
  std::int64_t near = 0;                 // of these, `is_near` (annotate/decision.h) of each alone
  std::int64_t held = 0;                 // of so many that could have been
  double difference = 0, reference = 0;  // sums of squares; of replicas that disagree, the larger difference
  double replicas = 0;                   // the sum of squares of what replicas are apart
  void add(const Difference& measured);
  double disagreement() const;  // how far replicas are apart, relative to the reference
  double error() const;         // the relative error of all compared tensors, as if they were one
};

struct Hypothesis {
  Placements axes;
  Fit fit;
};

// One pattern and kind, with the placements to try.
struct Search {
  std::string pattern;
  Kind kind = Kind::kOutput;
  Dtype dtype = Dtype::kFloat32;
  bool in_microbatches = false;
  std::vector<Hypothesis> hypotheses;
};

// The inputs that stay the same while hypotheses are tried.
struct Trial {
  const Trace& trace;
  const Annotations& settings;  // parallelism, and rules for tensors that no search is about
  const Alignment& reference;
};

// Measures every hypothesis of the searches whose kind is among `kinds`; tensors of the other searches are placed by
// the first hypothesis of theirs. The n-th hypotheses of all searches share one alignment of the whole trace.
void try_hypotheses(const Trial& trial, std::span<Search> searches, const std::vector<Kind>& kinds);

}  // namespace ttrace
