// One hypothesis: whether the candidate is what a certain mistake makes of the reference.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "merge/values.h"
#include "ttrace/diagnose/diagnosis.h"

namespace ttrace {

// A hypothesis may look at every tensor of a shape: 2^20 values are a hundredth of a second each.
bool is_small(const LogicalTensor& tensor);

struct Suspect {
  const Finding& finding;
  const LogicalTensor& reference;
  const LogicalTensor& candidate;
  const Evidence& evidence;
  Values expected, found;  // values of the reference and of the candidate's replica 0, all finite
  double bound = 0;        // the largest residual that explains
  double error = 0;        // the residual of doing nothing

  std::optional<Diagnosis> explained_by(Cause cause, const Values& hypothesis, const std::string& what) const {
    const double residual = relative_distance(found, hypothesis);
    return explained_by(cause, residual, what);
  }
  // It must explain the most part of the error: one that is barely too large looks like many things.
  std::optional<Diagnosis> explained_by(Cause cause, double residual, const std::string& what) const {
    if (!(residual <= bound && residual <= error / 2)) return std::nullopt;
    return Diagnosis{cause, residual, what};
  }
};

// From the measured sums alone, for tensors of any size.
std::optional<Diagnosis> uniform_factor(const Finding& finding, double bound, const Mesh& mesh);
std::optional<Diagnosis> zero(const Finding& finding);

// Sums over ranks and micro-batches: sums.cpp.
std::optional<Diagnosis> unreduced(const Suspect& suspect);
std::optional<Diagnosis> missing_contribution(const Suspect& suspect);
std::optional<Diagnosis> rank_factor(const Suspect& suspect);
// Places: places.cpp.
std::optional<Diagnosis> permuted_blocks(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted(const Suspect& suspect);
std::optional<Diagnosis> other_rows(const Suspect& suspect);
std::optional<Diagnosis> region(const Suspect& suspect);
// Values of something else: others.cpp.
std::optional<Diagnosis> never_updated(const Suspect& suspect);
std::optional<Diagnosis> stale(const Suspect& suspect);
std::optional<Diagnosis> other_tensor(const Suspect& suspect);
std::optional<Diagnosis> stale_operand(const Suspect& suspect);
std::optional<Diagnosis> coarser_precision(const Suspect& suspect);

}  // namespace ttrace
