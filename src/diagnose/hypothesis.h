// One hypothesis: whether the candidate is what a certain mistake makes of the reference.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>

#include "merge/values.h"
#include "ttrace/diagnose/diagnosis.h"

namespace ttrace {

// A hypothesis may look at every tensor of a shape: 2^20 values are a hundredth of a second each.
bool is_small(const LogicalTensor& tensor);
// Of one shape, floating, and small.
bool comparable(const LogicalTensor& a, const LogicalTensor& b);
std::string when(const TensorId& id);  // `iteration 1, micro-batch 2`

// A product of so many multiplications is made for one hypothesis; beyond it, none.
inline constexpr double kMostMultiplications = 4e9;

// What is fitted to fewer values, or sought among many for fewer, is found by chance. Of an error that is not the
// hypothesis's, a number fitted to n values explains the share 1 / n, and three quarters with a probability of less
// than 1e-5 for n = 16.
inline constexpr std::size_t kFewestValues = 16;

inline constexpr double kMostLeft = 0.25;  // of the error, by what is said to explain it

struct Suspect {
  const Finding& finding;
  const LogicalTensor& reference;
  const LogicalTensor& candidate;
  const Evidence& evidence;
  Values expected, found;          // values of the reference, and of one copy of the candidate, all finite
  std::vector<LocalTensor> parts;  // where `found` lies
  double bound = 0;                // the largest residual that explains
  double error = 0;                // the residual of doing nothing

  std::optional<Diagnosis> explained_by(Cause cause, const Values& hypothesis, const std::string& what) const {
    const double residual = relative_distance(found, hypothesis);
    return explained_by(cause, residual, what);
  }
  // It must explain the error, all but a sixteenth of its square: where much is allowed, many things come near.
  std::optional<Diagnosis> explained_by(Cause cause, double residual, const std::string& what) const {
    if (!(residual <= bound && residual <= error * kMostLeft)) return std::nullopt;
    return Diagnosis{cause, residual, what};
  }
};

// From the measured sums alone, for tensors of any size.
std::optional<Diagnosis> uniform_factor(const Finding& finding, double bound, const Evidence& evidence);
std::optional<Diagnosis> zero(const Finding& finding);

// Sums over ranks and micro-batches: sums.cpp, contributions.cpp.
std::optional<Diagnosis> unreduced(const Suspect& suspect);
std::optional<Diagnosis> missing_contribution(const Suspect& suspect);
// Numbers: factors.cpp.
std::optional<Diagnosis> rank_factor(const Suspect& suspect);
std::optional<Diagnosis> coarser_precision(const Suspect& suspect);
// Places: places.cpp, layouts.cpp.
std::optional<Diagnosis> permuted_blocks(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted(const Suspect& suspect);
std::optional<Diagnosis> other_rows(const Suspect& suspect);
std::optional<Diagnosis> region(const Suspect& suspect);
// Values of something else: others.cpp.
std::optional<Diagnosis> never_updated(const Suspect& suspect);
std::optional<Diagnosis> stale(const Suspect& suspect);
std::optional<Diagnosis> other_tensor(const Suspect& suspect);
// What a module computes from the wrong operand: operands.cpp, attention.cpp.
std::optional<Diagnosis> stale_operand(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted_operand(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted_in_attention(const Suspect& suspect);

// Calls `test` with `values` as a kernel reads them that takes the memory of two dimensions for that of the same two
// swapped, in the whole tensor or in each rank's part, and with words for that, until it returns a diagnosis.
using Reading = std::function<std::optional<Diagnosis>(const Values& values, const std::string& how)>;
std::optional<Diagnosis> try_readings(const Values& values, const Shape& shape, const std::vector<LocalTensor>& parts,
                                      const Reading& test);

}  // namespace ttrace
