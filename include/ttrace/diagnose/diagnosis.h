// What an error looks like: hypotheses, each tested against the data. A hypothesis is an expectation of the wrong
// tensor, made from the reference; it explains the error where the candidate equals it to within what the tensor may
// differ by. The first of a fixed order that does is reported, and none where none does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/finding.h"
#include "ttrace/mesh.h"

namespace ttrace {

// The words are part of the report's stable interface (lower case, hyphens).
enum class Cause : std::uint8_t {
  kMissing,              // "missing": not there at all
  kNotFinite,            // "not-finite": NaN or Inf
  kNeverUpdated,         // "never-updated": the optimizer left it as it was
  kZero,                 // "zero"
  kUnreduced,            // "unreduced": ranks hold terms of a sum, or values to be averaged, that were never reduced
  kUniformFactor,        // "uniform-factor": the reference's values times one number
  kStale,                // "stale": the value of another micro-batch or iteration
  kOtherTensor,          // "other-tensor": the value of another tensor of the same micro-batch
  kPermutedBlocks,       // "permuted-blocks": equal blocks of a dimension in another order
  kReinterpreted,        // "reinterpreted": in the memory order of transposed dimensions, or made of what is
  kMissingContribution,  // "missing-contribution": a sum without some of its terms, or with some twice
  kStaleOperand,         // "stale-operand": a weight's gradient, computed with another call's input
  kOtherRows,            // "other-rows": some rows hold the values of others
  kRankFactor,           // "rank-factor": in ranks' parts, the reference's values times a number each
  kCoarserPrecision,     // "coarser-precision": rounded to a narrower dtype than it is stored in
  kRegion,               // "region": wrong in one part, which ranks or indices tell, and right elsewhere
};
std::string_view name_of(Cause cause);

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
