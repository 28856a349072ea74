#include <algorithm>
#include <cmath>
#include <map>

#include "base/lookup.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// Returns a rank of each replica: the one that holds its first piece.
std::map<std::int32_t, std::int32_t> ranks_of_replicas(const LogicalTensor& tensor) {
  std::map<std::int32_t, std::int32_t> ranks;
  for (const Piece& piece : tensor.pieces()) ranks.try_emplace(piece.replica, piece.rank);
  return ranks;
}

// Returns the replicas whose ranks have the coordinates of replica 0's, but for the one on `axis`.
std::vector<std::int32_t> replicas_along(const Axis& axis, const Axes& axes,
                                         const std::map<std::int32_t, std::int32_t>& ranks) {
  Coordinates base = coordinates_of(axes, ranks.at(0));
  base.erase(axis.name);
  std::vector<std::int32_t> replicas;
  for (const auto& [replica, rank] : ranks) {
    Coordinates other = coordinates_of(axes, rank);
    other.erase(axis.name);
    if (other == base) replicas.push_back(replica);
  }
  return replicas;
}

// Returns how far from the reference the value before is with all that the copies, `sum` in all, have added to it;
// infinity for what is no buffer.
double distance_of_changes(const Suspect& suspect, const Values& sum, std::size_t copies) {
  if (suspect.candidate.id.kind != Kind::kBufferAfter) return INFINITY;
  const LogicalTensor* before = find_tensor(suspect.evidence.candidate, suspect.candidate.id.with_kind(Kind::kBuffer));
  if (before == nullptr || before->shape != suspect.candidate.shape) return INFINITY;
  Values after = values_of(*before);
  for (std::size_t i = 0; i < after.size(); ++i) after[i] = sum[i] - static_cast<double>(copies - 1) * after[i];
  return relative_distance(after, suspect.reference_values);
}

Values scaled(Values values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

// True of a gradient that ranks step with alike, though they hold others where its norm was taken, and norms of their own;
// as they do of all that the norm is of: one that alone was left out may be stepped with alike by chance, or not at all.
bool are_reduced_behind_clipping(const Suspect& suspect, const std::vector<std::int32_t>& replicas) {
  const TensorId& id = suspect.candidate.id;
  const Alignment& candidate = suspect.evidence.candidate;
  TensorId of_norm;
  of_norm.iteration = id.iteration;
  of_norm.microbatch = kNoMicrobatch;
  of_norm.kind = Kind::kScalar;
  of_norm.name = "grad_norm";
  const LogicalTensor* norm = find_tensor(candidate, of_norm);
  const LogicalTensor* after = find_tensor(candidate, id.with_kind(Kind::kParamAfter));
  const LogicalTensor* update = find_tensor(candidate, id.with_kind(Kind::kParamDelta));
  const auto is_zero = [](double value) { return value == 0; };
  if (update != nullptr && is_small(*update) && std::ranges::all_of(values_of(*update), is_zero)) return false;
  if (id.kind != Kind::kMainGrad || norm == nullptr || after == nullptr || !is_small(*after)) return false;
  const auto are_alike = [&](const LogicalTensor& tensor) {
    return std::ranges::all_of(
        replicas, [&](std::int32_t replica) { return values_of(tensor, replica) == values_of(tensor, replicas[0]); });
  };
  const auto is_alike_gradient = [&](const auto& item) {
    const LogicalTensor& tensor = item.second;
    return item.first.kind == Kind::kMainGrad && item.first.iteration == id.iteration && is_small(tensor) &&
           ranks_of_replicas(tensor) == ranks_of_replicas(suspect.candidate) && are_alike(tensor);
  };
  return are_alike(*after) && !are_alike(*norm) && std::ranges::none_of(candidate.tensors, is_alike_gradient);
}

}  // namespace

std::optional<Diagnosis> unreduced(const Suspect& suspect) {
  if (suspect.finding.reason != Reason::kReplicasDisagree) return std::nullopt;
  const Axes axes = factorings_of(suspect.evidence.mesh)[suspect.candidate.factoring];
  const auto ranks = ranks_of_replicas(suspect.candidate);
  if (!ranks.contains(0)) return std::nullopt;
  for (const Axis& axis : axes) {
    const std::vector<std::int32_t> replicas = replicas_along(axis, axes, ranks);
    if (replicas.size() < 2) continue;
    Values sum(suspect.reference_values.size());
    double nearest = INFINITY;  // of the copies to the reference: where one is right, the copies are no terms
    for (const std::int32_t replica : replicas) {
      const Values values = values_of(suspect.candidate, replica);
      nearest = std::min(nearest, relative_distance(values, suspect.reference_values));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    const double of_sum = relative_distance(sum, suspect.reference_values);
    const double of_changes = distance_of_changes(suspect, sum, replicas.size());
    const double of_mean =
        relative_distance(scaled(sum, 1.0 / static_cast<double>(replicas.size())), suspect.reference_values);
    if (nearest <= suspect.bound) continue;
    AxisPlacement terms;
    terms.axis = axis.name;
    terms.placement = Placement::kPartial;
    const std::string ranks_hold = fmt::format("the {} ranks of {}", replicas.size(), axis.name);
    if (of_sum <= std::min(suspect.bound, nearest * kLargestShareLeft)) {
      return Diagnosis{Cause::kUnreduced, of_sum,
                       fmt::format("{} hold unsummed partial values: their sum is the reference's", ranks_hold), "",
                       terms};
    }
    if (of_changes <= std::min(suspect.bound, nearest * kLargestShareLeft)) {
      return Diagnosis{Cause::kUnreduced, of_changes,
                       fmt::format("{} hold what each has added by itself, which was never reduced: the sum of what "
                                   "they added is what the reference has added",
                                   ranks_hold)};
    }
    // The mean of n copies with independent errors is nearer by the square root of n, without being the explanation.
    const double most_left = nearest * kLargestShareLeft / std::sqrt(static_cast<double>(replicas.size()));
    if (of_mean <= std::min(suspect.bound, most_left)) {
      terms.mean = true;
      const std::string_view when = are_reduced_behind_clipping(suspect, replicas)
                                        ? "were not averaged when each rank clipped its own, but afterwards"
                                        : "were never averaged";
      return Diagnosis{Cause::kUnreduced, of_mean,
                       fmt::format("{} hold values that {}: their mean is the reference's", ranks_hold, when), "",
                       terms};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
