// What an error looks like: hypotheses, each tested against the data. A hypothesis is an expectation of the wrong
// tensor, made from the reference; it explains the error where the candidate equals it to within what the tensor may
// differ by. The first of a fixed order that does is reported, and none where none does.
#pragma once

#include <optional>
#include <string>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/finding.h"
#include "ttrace/mesh.h"
#include "ttrace/outcome.h"

namespace ttrace {

struct Diagnosis {
  Cause cause = Cause::kMissing;
  double residual = 0;  // ||candidate - expected|| / ||expected||: at most what the tensor may differ by
  std::string what;     // a clause: "every element is 2 times the reference's, the size of tp"
};

// What hypotheses may draw on.
struct Evidence {
  const Alignment& reference;
  const Alignment& candidate;
  Mesh mesh;                          // of the candidate
  const std::vector<TiedRule>& tied;  // declared in the annotations
  bool rewritten = false;             // the candidate's modules were given the reference's values (see dataflow.h)
};

// Diagnoses one finding that is `fail` or `missing`. `made_here` as in Root. Tensors of more than 2^20 elements get
// only what the measured sums tell.
std::optional<Diagnosis> diagnose(const Finding& finding, bool made_here, const Evidence& evidence);

}  // namespace ttrace
