// Experts that each rank numbers from 0 where nothing says so: what the bytes of a run tell of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/alignment.h"
#include "base/annotation.h"
#include "base/trace.h"

namespace ttrace {

struct LocalExperts {
  std::string axis, layers;            // as in ExpertRule
  std::int64_t own = 0, of_model = 0;  // how many a rank numbers, and how many the reference has
  bool told = false;  // each begins with the bytes of the expert that the rule makes of it; else names and shapes fit

  std::string line() const;  // `experts: {axis: tp, layers: moe.experts}`
};

// Returns the rule that the candidate's names ask for: the ranks of each coordinate of one axis have `layers.0`, ...,
// in the shapes of the reference's, and others have other parameters under these names, so many that they add up to the
// reference's. Nothing where that is not so. `candidate` has settled axes; its first recorded iteration is looked at.
std::optional<LocalExperts> find_local_experts(const Alignment& reference, const Trace& candidate);

}  // namespace ttrace
