// Tolerances of a reference that no perturbed run was made of: a closed form, not measured. src/tolerance/
// default_tolerance.cpp has the derivation and the evidence.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/alignment.h"
#include "compare/compare.h"
#include "tolerance/tolerance.h"

namespace ttrace {

// The word that `check -t default` is given in place of a file's name.
inline constexpr std::string_view kDefaultTolerance = "default";

// allowed = kUnmeasuredMargin * unit * sqrt(depth)
inline constexpr double kUnmeasuredMargin = 2;

// Returns a tolerance for every floating-point tensor of the reference, of the norm alone: no other statistic, no
// coherence and no regression of updates has a closed form. `unmeasured` of the result says so. `compute_dtype` is that
// of the reference's trace, or empty: then the dtype that most of its floating-point elements are stored in. Throws
// InputError for a reference of several iterations.
ToleranceFile default_tolerances(const Alignment& reference, const std::string& compute_dtype);

// Returns what an activation or a gradient of that depth may differ by; `terms`: of the longest sum.
double allowed_at(double depth, Dtype dtype, std::int64_t terms);

// Returns a depth that no tensor's is larger than.
double greatest_depth(const StoredTensors& reference);

// Widens them by what the values of the reference say, which `differences`, one a pair, have measured: how much the sum
// over tokens cancels that a parameter's gradient is, how large the update of a parameter is beside it, and what the
// norm of all gradients is off by.
void widen_by_values(std::span<const TensorPair> pairs, std::span<const Difference> differences, ToleranceFile& file);

// Widens those of gradients that differ by more, by what the reference's own are off from the sums of their terms, which
// are read.
void widen_by_own_sums(const Alignment& reference, std::span<const TensorPair> pairs,
                       std::span<const Difference> differences, ToleranceFile& file);

}  // namespace ttrace
