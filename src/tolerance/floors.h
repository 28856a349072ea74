// Estimates floors: the least that a tensor may differ by, however little the perturbed runs moved it. The reasons are
// in floors.cpp.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "tolerance/estimate.h"

namespace ttrace {

inline constexpr std::int64_t kFewElements = 8;  // at most so many leave much to luck

// True for the kinds that an optimizer's step makes, which is not smooth.
bool is_changed_by_step(Kind kind);

// Returns the floor of each floating-point tensor, the largest over its micro-batches and iterations. `responses` holds
// those of all runs, micro-batches and iterations.
std::map<ToleranceKey, double> estimate_floors(std::span<const RunDifferences> perturbed,
                                               const std::map<ToleranceKey, std::vector<double>>& responses,
                                               const EstimateOptions& options, const OwnRoundings& own_sums);

// Returns the least that a tensor may differ by, whatever the perturbed runs say: what rounding its elements moves it
// by, in root mean square. `terms` is that of `most_terms`.
double rounding_floor(Kind kind, Dtype stored, const EstimateOptions& options, std::int64_t terms);
double rounding_of_sums(Dtype dtype, double margin, std::int64_t terms);

// The epsilon of the dtype that values with this epsilon are added up in: fp32, or theirs where that is wider.
double summing_epsilon(double epsilon);

// Holds what the gradients of an iteration have that their norm depends on.
class GradientSizes {
 public:
  void add(std::int64_t elements);

  // The most that the norm of them all is off by, relatively, where random roundings add up: half a step for each of N
  // squares, in fp32 or wider, and for each gradient's own norm, in `dtype`, that of the whole.
  double rounding_of_norm(Dtype dtype) const;

 private:
  double elements_ = 0, gradients_ = 0;
};

// The most terms that a sum over the rows or columns of a tensor of the run can have.
std::int64_t most_terms(const RunDifferences& run);

// Returns, for each tensor that an optimizer's step changes, how far one of its elements may jump, relative to their
// root mean square.
std::map<ToleranceKey, double> largest_step_jumps(std::span<const RunDifferences> perturbed, double margin);

// The most that `estimate_floors` asks for because a tensor of so few elements was measured a few times: `largest` is
// the largest response of its group, the tensors of its kind whose names differ in numbers.
double largest_luck(double largest, std::int64_t elements, double margin);

}  // namespace ttrace
