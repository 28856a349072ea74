#include <algorithm>
#include <cmath>
#include <map>

#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

// A rank of each replica: the first that holds its first element.
std::map<std::int32_t, std::int32_t> ranks_of_replicas(const LogicalTensor& tensor) {
  std::map<std::int32_t, std::int32_t> ranks;
  for (const Piece& piece : tensor.pieces()) ranks.try_emplace(piece.replica, piece.rank);
  return ranks;
}

// The replicas whose ranks differ from replica 0's in their coordinate on `axis` only.
std::vector<std::int32_t> along(const Axis& axis, const Axes& axes, const std::map<std::int32_t, std::int32_t>& ranks) {
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

Values scaled(Values values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

}  // namespace

std::optional<Diagnosis> unreduced(const Suspect& suspect) {
  if (suspect.finding.reason != Reason::kReplicasDisagree) return std::nullopt;
  const Axes axes = factorings_of(suspect.evidence.mesh)[suspect.candidate.factoring];
  const auto ranks = ranks_of_replicas(suspect.candidate);
  if (!ranks.contains(0)) return std::nullopt;
  for (const Axis& axis : axes) {
    const std::vector<std::int32_t> replicas = along(axis, axes, ranks);
    if (replicas.size() < 2) continue;
    Values sum(suspect.expected.size());
    double nearest = INFINITY;  // of the copies to the reference: one that is right is no term
    for (const std::int32_t replica : replicas) {
      const Values values = values_of(suspect.candidate, replica);
      nearest = std::min(nearest, relative_distance(values, suspect.expected));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    const double of_sum = relative_distance(sum, suspect.expected);
    const double of_mean = relative_distance(scaled(sum, 1.0 / static_cast<double>(replicas.size())), suspect.expected);
    if (nearest <= suspect.bound) continue;
    const std::string ranks_hold = fmt::format("the {} ranks of {}", replicas.size(), axis.name);
    if (of_sum <= std::min(suspect.bound, nearest * kMostLeft)) {
      return Diagnosis{Cause::kUnreduced, of_sum,
                       fmt::format("{} hold unsummed partial values: their sum is the reference's", ranks_hold)};
    }
    // Of n copies whose errors have nothing to do with each other, the mean is nearer by the square root of n.
    const double most_left = nearest * kMostLeft / std::sqrt(static_cast<double>(replicas.size()));
    if (of_mean <= std::min(suspect.bound, most_left)) {
      return Diagnosis{
          Cause::kUnreduced, of_mean,
          fmt::format("{} hold values that were never averaged: their mean is the reference's", ranks_hold)};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
