#include "diagnose/initialisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/describe.h"
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

// The ranks whose copies of all these weights are others than the first one's.
std::vector<std::int32_t> ranks_with_others(const std::vector<const Difference*>& weights) {
  std::vector<std::int32_t> ranks = weights[0]->replica_ranks;
  std::erase_if(ranks, [&](std::int32_t rank) {
    return !std::ranges::all_of(
        weights, [&](const Difference* weight) { return std::ranges::count(weight->replica_ranks, rank) > 0; });
  });
  return ranks;
}

std::string path_or(const std::string& path, const char* otherwise) { return path.empty() ? otherwise : path; }

}  // namespace

std::optional<std::string> describe_other_initialisation(const Report& report, const Alignment& reference) {
  const std::vector<const Difference*> weights = initial_weights(report, reference);
  std::vector<const Difference*> unlike;
  std::ranges::copy_if(weights, std::back_inserter(unlike),
                       [](const Difference* weight) { return is_unlike(*weight); });
  if (unlike.size() < 2 || static_cast<double>(unlike.size()) < kLeastShare * static_cast<double>(weights.size()))
    return std::nullopt;
  const std::string which = fmt::format("{} of {} weights have nothing in common with the reference's but their size",
                                        unlike.size(), weights.size());
  if (const std::vector<std::int32_t> ranks = ranks_with_others(unlike); !ranks.empty()) {
    return fmt::format(
        "the ranks began with different parameters: {} in the copies of {}, as those of another seed, which nothing "
        "has made equal (a broadcast, or one seed for all ranks)",
        which, describe_ranks(ranks));
  }
  return fmt::format(
      "the runs began with different parameters: {}, as those of another seed; "
      "`ttrace collect --inject-params {} --layout {}` gives the candidate the reference's, "
      "--consistent-init in its place gives both runs the same",
      which, path_or(report.runs.reference, "REFERENCE"), path_or(report.runs.candidate, "CANDIDATE"));
}

}  // namespace ttrace
