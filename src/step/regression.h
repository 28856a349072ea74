// The updates of optimizers whose rule is not known: how much of the reference's is in the candidate's.
//
// An elementwise optimizer makes of a gradient that is the reference's, but for rounding, an update that is the
// reference's, but for rounding. In low precision most of that rounding is in elements whose gradient is itself no more
// than rounding: Adam's first update of such an element is lr or -lr, by chance. They are left out. In the elements
// above rounding, S, those whose gradient is more than four times the root mean square of the gradients' difference, on
// both sides and in every recorded iteration so far, the candidate's update d' is the reference's d, times a slope:
//
//   slope  a = <d', d> / <d, d>, of a tensor with 16 elements in S or more, and of all tensors together
//   decay  d' - d = (a - 1) d + b p, of all tensors together, p being the parameter: b |p| / |d|
//   still  the share of the elements with d' = 0 among those with d != 0, in S and of all
//   norm   |d'| / |d| of all elements, of a tensor with fewer in S
//
// A learning rate that is 1 % off, or another eps or beta, shows in the slope, weight decay in the decay, and what was
// not updated in those that stand still. How far a correct run is from 1, 0 and 0 depends on the optimizer, the
// iteration and the precision, and is measured on the runs that tolerances are estimated from. What those may have
// missed is that p + d is rounded to p's dtype: where d differs by little, an element now and then goes to the other
// neighbour. Likewise an element whose update is next to nothing now and then stands still. Where three runs saw none
// do so, five and more do in 1 of 5000 tensors at most: four are allowed as well.
//
// An optimizer that steps by the sign of a sum, as Lion does, reverses an element where that sum is near zero, though
// no gradient is. A correct run in which one is reversed is called different where no perturbed run has any: in fp32,
// with gradients off by 3e-7, about one iteration in 20 of 1e5 parameters. Allowing that would not help, since the
// parameter is another one from then on, and with it all that follows; so the finding says what it may be. In the first
// step of such an optimizer the sum is the gradient itself, and no element above rounding is reversed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "tolerance/estimate.h"
#include "tolerance/update_tolerance.h"

namespace ttrace {

// Holds what a pair of updates sums up to. `d` is the reference's update, `e` how far the candidate's is from it, `p`
// the reference's parameter before the step.
struct UpdateSums {
  std::int64_t above = 0;                                 // elements in S
  double dd = 0, de = 0, ee = 0, dp = 0, pp = 0, pe = 0;  // over S
  std::int64_t moved_above = 0, still_above = 0;          // in S: d is not 0; of these, those where the candidate's is
  std::int64_t moved = 0, still = 0;                      // of all elements
  double reference_square = 0, candidate_square = 0;      // of all elements
  // The change by one element that is rounded to the other neighbour: the largest unit in the last place of the value
  // that is updated, in units of its dtype's epsilon, times |d| in S, times |p| in S, and times |d| of all elements. 0
  // where the parameter was not recorded.
  double d_units = 0, p_units = 0, all_units = 0;
  // Elements in S that go the other way, by no more than twice and no less than half as much, and their part of dd and
  // de.
  std::int64_t reversed = 0;
  double reversed_dd = 0, reversed_de = 0;
  std::int64_t not_finite = 0;

  void add(const UpdateSums& other);
  double slope_error() const { return de / dd; }  // a - 1
  // |d' - a d| / |d|: what of the candidate's update is no multiple of the reference's.
  double across() const { return std::sqrt(std::max(ee - de * de / dd, 0.0) / dd); }
  double slope_error_of_others() const { return dd > reversed_dd ? (de - reversed_de) / (dd - reversed_dd) : 0; }
};

// A slope of fewer elements is a matter of luck.
inline constexpr std::int64_t kLeastAbove = 16;

struct RegressedUpdate {
  TensorId id;         // of the candidate's param_delta
  std::string reason;  // why there are no sums; empty where there are
  UpdateSums sums;
};

// Returns one for each pair of `wanted` updates, in order of their identities. `pairs` and `differences` are those of a
// comparison: of each parameter the gradients, updates and values. The memory in use stays bounded. Any number of
// threads (0: OpenMP's default) gives the same bits.
std::vector<RegressedUpdate> regress_updates(std::span<const TensorPair> pairs, std::span<const Difference> differences,
                                             const std::set<TensorId>& wanted, int threads);

// Measures the updates of all `runs` of the reference's program, the perturbed ones and then the rerun if there is one.
UpdateTolerances measure_update_tolerances(const AlignedTrace& reference, std::span<const RunDifferences> runs,
                                           int threads);

}  // namespace ttrace
