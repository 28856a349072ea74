#include <algorithm>
#include <cmath>
#include <map>
#include <set>

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
std::vector<std::int32_t> along(const Axis& axis, const Mesh& mesh, const std::map<std::int32_t, std::int32_t>& ranks) {
  Coordinates base = coordinates_of(mesh.axes, ranks.at(0));
  base.erase(axis.name);
  std::vector<std::int32_t> replicas;
  for (const auto& [replica, rank] : ranks) {
    Coordinates other = coordinates_of(mesh.axes, rank);
    other.erase(axis.name);
    if (other == base) replicas.push_back(replica);
  }
  return replicas;
}

Values scaled(Values values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

// What a number stands for: the size of an axis, or its inverse; empty for none.
std::string meaning_of(double factor, double bound, const Mesh& mesh) {
  for (const Axis& axis : mesh.axes) {
    if (axis.size == 1) continue;
    const auto size = static_cast<double>(axis.size);
    if (std::abs(factor - size) <= bound * size) return fmt::format(", the size of {}", axis.name);
    if (std::abs(factor - 1 / size) <= bound / size) return fmt::format(", one over the size of {}", axis.name);
  }
  return {};
}

}  // namespace

std::optional<Diagnosis> unreduced(const Suspect& suspect) {
  if (suspect.finding.reason != Reason::kReplicasDisagree) return std::nullopt;
  const Mesh& mesh = suspect.evidence.mesh;
  const auto ranks = ranks_of_replicas(suspect.candidate);
  if (!ranks.contains(0)) return std::nullopt;
  for (const Axis& axis : mesh.axes) {
    const std::vector<std::int32_t> replicas = along(axis, mesh, ranks);
    if (replicas.size() < 2) continue;
    Values sum(suspect.expected.size());
    for (const std::int32_t replica : replicas) {
      const Values values = values_of(suspect.candidate, replica);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    const double of_sum = relative_distance(sum, suspect.expected);
    const double of_mean = relative_distance(scaled(sum, 1.0 / static_cast<double>(replicas.size())), suspect.expected);
    const std::string ranks_hold = fmt::format("the {} ranks of {}", replicas.size(), axis.name);
    if (of_sum <= suspect.bound) {
      return Diagnosis{Cause::kUnreduced, of_sum,
                       fmt::format("{} hold unsummed partial values: their sum is the reference's", ranks_hold)};
    }
    if (of_mean <= suspect.bound) {
      return Diagnosis{
          Cause::kUnreduced, of_mean,
          fmt::format("{} hold values that were never averaged: their mean is the reference's", ranks_hold)};
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> uniform_factor(const Finding& finding, double bound, const Mesh& mesh) {
  const Difference& difference = *finding.difference;
  const double factor = difference.uniform_factor();
  const double residual = difference.uniform_factor_residual();
  const bool explains = residual <= bound && residual <= difference.rel_err() / 2;
  if (!explains || !(std::abs(factor - 1) > bound) || factor == 0) return std::nullopt;
  return Diagnosis{
      Cause::kUniformFactor, residual,
      fmt::format("every element is {:.4g} times the reference's{}", factor, meaning_of(factor, bound, mesh))};
}

std::optional<Diagnosis> missing_contribution(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  if (id.kind != Kind::kMainGrad) return std::nullopt;
  std::map<std::int32_t, Values> terms;  // by micro-batch
  Values sum(suspect.expected.size());
  for (const auto& [other, tensor] : suspect.evidence.reference.tensors) {
    const bool is_term = other.kind == Kind::kParamGrad && other.name == id.name && other.iteration == id.iteration;
    if (!is_term || tensor.shape != suspect.reference.shape || !is_small(tensor)) continue;
    const Values& term = terms[other.microbatch] = values_of(tensor);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }
  if (terms.size() < 2 || dot_of(sum, sum) == 0) return std::nullopt;
  const double scale = dot_of(suspect.expected, sum) / dot_of(sum, sum);
  if (relative_distance(scaled(sum, scale), suspect.expected) > suspect.bound) return std::nullopt;
  const auto without = [&](const std::set<std::int32_t>& left_out) {
    Values rest = suspect.expected;
    for (const std::int32_t microbatch : left_out) {
      for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= scale * terms[microbatch][i];
    }
    return rest;
  };
  for (const auto& [microbatch, term] : terms) {
    const std::string what = fmt::format("the sum lacks the gradient of micro-batch {}", microbatch);
    if (auto found = suspect.explained_by(Cause::kMissingContribution, without({microbatch}), what)) return found;
  }
  for (const auto& [microbatch, term] : terms) {
    std::set<std::int32_t> others;
    for (const auto& [other, values] : terms) others.insert(other);
    others.erase(microbatch);
    const std::string what = fmt::format("the sum has the gradient of micro-batch {} only", microbatch);
    if (auto found = suspect.explained_by(Cause::kMissingContribution, without(others), what)) return found;
  }
  for (const Axis& axis : suspect.evidence.mesh.axes) {
    for (std::int64_t rank = 0; axis.size > 1 && rank < axis.size; ++rank) {
      std::set<std::int32_t> left_out;
      for (const auto& [microbatch, term] : terms) {
        if (microbatch % axis.size == rank) left_out.insert(microbatch);
      }
      const std::string what = fmt::format("the sum lacks the micro-batches {} of rank {} of {}",
                                           fmt::join(left_out, ", "), rank, axis.name);
      if (auto found = suspect.explained_by(Cause::kMissingContribution, without(left_out), what)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> rank_factor(const Suspect& suspect) {
  struct Sums {
    double dot = 0, square = 0;
    std::vector<std::int32_t> ranks;
  };
  std::map<Shape, Sums> parts;  // by where they begin
  Values explained = suspect.expected;
  std::string words;
  std::map<Shape, Box> boxes;
  for (const Piece& piece : suspect.candidate.pieces()) {
    if (piece.replica != 0 || piece.term != 0) continue;
    boxes.emplace(piece.logical.start, piece.logical);
    parts[piece.logical.start].ranks.push_back(piece.rank);
  }
  if (boxes.size() < 2) return std::nullopt;
  const Shape& shape = suspect.reference.shape;
  const auto each = [&](const Box& box, auto&& function) {
    Shape index(shape.size(), 0);
    for (std::int64_t i = 0; i < element_count(box.size); ++i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + box.start[d] + index[d];
      function(static_cast<std::size_t>(at));
      for (std::size_t d = shape.size(); d-- > 0 && ++index[d] == box.size[d];) index[d] = 0;
    }
  };
  std::map<std::int32_t, double> factors;
  for (const auto& [start, box] : boxes) {
    Sums& sums = parts[start];
    each(box, [&](std::size_t i) {
      sums.dot += suspect.found[i] * suspect.expected[i];
      sums.square += suspect.expected[i] * suspect.expected[i];
    });
    if (sums.square == 0) return std::nullopt;
    const double factor = sums.dot / sums.square;
    each(box, [&](std::size_t i) { explained[i] *= factor; });
    factors.emplace(sums.ranks.front(), factor);
  }
  for (const auto& [rank, factor] : factors) {
    if (std::abs(factor - 1) > suspect.bound)
      words += fmt::format("{}{:.4g} on rank {}", words.empty() ? "" : ", ", factor, rank);
  }
  if (words.empty()) return std::nullopt;
  return suspect.explained_by(Cause::kRankFactor, explained,
                              fmt::format("the parts of some ranks are the reference's times a number: {}", words));
}

}  // namespace ttrace
