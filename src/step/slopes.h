// Measures what the updates of a class of optimizers, in one iteration, have of the reference's.
#pragma once

#include <span>
#include <vector>

#include "step/regression.h"

namespace ttrace {

// Tells how far the updates of several tensors, together, are from the reference's.
struct PooledSlope {
  std::int64_t tensors = 0;  // with enough elements above rounding
  UpdateSums total;          // of these
  double slope_error = 0;    // a - 1 of d' = a d
  double slope_doubt = 0;    // its standard error: tensors are independent draws
  double beside_decay = 0;   // a - 1 of d' - d = (a - 1) d + b p
  double decay = 0;          // b of d' - d = (a - 1) d + b p; 0 where that cannot be told from a
  double decay_share = 0;    // |b| |p| / |d|
  double decay_doubt = 0;    // the standard error of that
};
PooledSlope pool(std::span<const UpdateSums* const> updates);

// Returns what a run measured of a class and an iteration, one number for each UpdateMeasure, as a sample of a
// tolerance: from 0 to 1.
std::array<double, kUpdateMeasures.size()> sample_of(std::span<const UpdateSums* const> updates);

// These return how far what the parameters round may move the slope of these sums, their decay, and the ratio of the
// norms. Their units are those of the dtype.
double slope_rounding(const UpdateSums& sums);
double decay_rounding(const UpdateSums& sums);
double norm_rounding(const UpdateSums& sums);
double still_rounding(const UpdateSums& sums);  // the share of elements above rounding that stand still by it

bool has_slope(const UpdateSums& sums);
double norm_error(const UpdateSums& sums);         // |d'| / |d| - 1
double share_still_above(const UpdateSums& sums);  // 0 where nothing moved
double share_still(const UpdateSums& sums);

// Holds, by iteration and canonical name, the class of the optimizer that the run says has stepped; "" where it does
// not say.
using OptimizerNames = std::map<std::pair<std::int32_t, std::string>, std::string>;
OptimizerNames optimizer_names(const AlignedTrace& aligned);

}  // namespace ttrace
