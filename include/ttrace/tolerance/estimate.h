// Tolerance estimation (TTrace, section 4.5).
#pragma once

#include <span>
#include <vector>

#include "ttrace/align/shard_mapping.h"
#include "ttrace/compare/compare.h"
#include "ttrace/tolerance/tolerance.h"

namespace ttrace {

// The measured differences of one rerun of the reference.
struct RunDifferences {
  std::vector<TensorPair> pairs;
  std::vector<Difference> differences;  // one per pair
};

struct EstimateOptions {
  double margin = 0;
  Dtype compute_dtype = Dtype::kFloat32;
};

// Fills `tensors`, `margin`, `epsilon` and `compute_dtype` of the result.
ToleranceFile estimate(std::span<const RunDifferences> perturbed, const RunDifferences* rerun,
                       const EstimateOptions& options);

}  // namespace ttrace
