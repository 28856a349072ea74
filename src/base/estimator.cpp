#include "base/estimator.h"

#include <algorithm>

namespace ttrace {

std::string_view name_of(Estimator estimator) { return kEstimatorNames[static_cast<std::size_t>(estimator)]; }

std::optional<Estimator> estimator_from_name(std::string_view name) {
  const auto found = std::find(kEstimatorNames.begin(), kEstimatorNames.end(), name);
  if (found == kEstimatorNames.end()) return std::nullopt;
  return static_cast<Estimator>(found - kEstimatorNames.begin());
}

}  // namespace ttrace
