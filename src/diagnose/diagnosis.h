// Says what an error looks like, by testing hypotheses against the data. A hypothesis predicts the wrong tensor's
// values from the reference's. It explains the error if the candidate equals the prediction to within what the tensor
// may differ by. The hypotheses have a fixed order, and the first that explains the error is reported.
#pragma once

#include <optional>
#include <string>

#include "base/alignment.h"
#include "base/finding.h"
#include "base/mesh.h"
#include "base/outcome.h"
#include "diagnose/configurations.h"
#include "tolerance/tolerance.h"

namespace ttrace {

struct Diagnosis {
  Cause cause = Cause::kMissing;
  double residual = 0;  // ||candidate - prediction|| / ||prediction||: at most what the tensor may differ by
  std::string what;     // a clause: "every element is 2 times the reference's, the size of tp"
  // Diagnoses of one cause with an equal group say the same, be it in other numbers; empty: those with an equal `what`.
  std::string group = {};
  // The placement along one axis by which the tensor would be right, where a diagnosis is one of a placement: terms of a
  // sum, or of a mean.
  std::optional<AxisPlacement> placement = {};
};

// The data that hypotheses are tested against.
struct Evidence {
  const Alignment& reference;
  const Alignment& candidate;
  Mesh mesh;                          // the candidate's
  const std::vector<TiedRule>& tied;  // declared in the annotations
  bool rewritten = false;             // the candidate's modules were given the reference's values (see dataflow.h)
  const ConfiguredOtherwise* configured = nullptr;  // null: nothing is known of how modules are configured
  // What the alignments are of; null: nothing is known of what is drawn.
  const Trace *reference_trace = nullptr, *candidate_trace = nullptr;
  bool by_bits = false;                      // equal bits were asked for
  const ToleranceFile* rounding = nullptr;   // then, what rounding may do to tensors; null: not known
  const ToleranceFile* tolerance = nullptr;  // by which the candidate was judged; null: by none
};

// True where equal bits were asked for, and the tensor differs by no more than rounding may do: another order of
// summation is no error to look into.
bool is_rounding(const Finding& finding, const Evidence& evidence);

// Diagnoses a finding whose candidate is the reference rounded to a narrower dtype, in time that is linear in its size.
std::optional<Diagnosis> diagnose_rounding(const Finding& finding, const Evidence& evidence);

// Diagnoses one finding that is `fail` or `missing`; nothing where no hypothesis explains it. `made_here` is that of
// `Root`. For tensors of more than 2^20 elements only the hypotheses that need no more than the measured sums are
// tested.
std::optional<Diagnosis> diagnose(const Finding& finding, bool made_here, const Evidence& evidence);

// The same of a gradient of a loss, one number, that is wrong. It is the cause where the loss is wrong by as much as it
// makes it; else it says where the error shows (kRegion).
std::optional<Diagnosis> diagnose_gradient_of_loss(const Finding& finding, const Finding& loss,
                                                   const Evidence& evidence);

}  // namespace ttrace
