#include "diagnose/initialisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/lookup.h"

namespace ttrace {
namespace {

constexpr double kLeastShare = 0.75;   // of the weights: a mistake in one kind of layer makes fewer wrong
constexpr double kMostCosine = 0.5;    // that of independent draws is near 0
constexpr double kMostNormsRatio = 2;  // that of independent draws is near 1

bool is_unlike(const Difference& difference) {
  const double ratio = std::sqrt(difference.candidate_square / difference.reference_square);
  return difference.one_minus_cosine() >= 1 - kMostCosine && ratio <= kMostNormsRatio && ratio >= 1 / kMostNormsRatio;
}

// Returns what was measured of the weights that the first iteration begins with.
std::vector<const Difference*> initial_weights(const Report& report, const Alignment& reference) {
  if (reference.tensors.empty()) return {};
  const std::int32_t first = reference.tensors.begin()->first.iteration;
  std::vector<const Difference*> weights;
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      if (finding.id.kind != Kind::kParam || finding.id.iteration != first || !finding.difference) continue;
      const LogicalTensor* tensor = find_tensor(reference, finding.id);
      const bool is_weight = tensor != nullptr && tensor->shape.size() >= 2;
      if (is_weight && finding.difference->reference_square > 0) weights.push_back(&*finding.difference);
    }
  }
  return weights;
}

}  // namespace

std::optional<std::string> describe_other_initialisation(const Report& report, const Alignment& reference) {
  const std::vector<const Difference*> weights = initial_weights(report, reference);
  const auto unlike =
      std::count_if(weights.begin(), weights.end(), [](const Difference* weight) { return is_unlike(*weight); });
  if (unlike < 2 || static_cast<double>(unlike) < kLeastShare * static_cast<double>(weights.size()))
    return std::nullopt;
  return fmt::format(
      "the runs began with different parameters: {} of {} weights have nothing in common with the "
      "reference's but their size, as those of another seed; `ttrace collect --inject-params {}` gives "
      "the candidate the reference's, --consistent-init gives both runs the same",
      unlike, weights.size(), report.runs.reference.empty() ? "REFERENCE" : report.runs.reference);
}

}  // namespace ttrace
