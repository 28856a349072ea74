#include "judge/router.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "numeric/convert.h"

namespace ttrace {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Returns where in the piece's entry the first element is that it has of this row; nothing where it has none.
std::optional<std::int64_t> find_row(const Piece& piece, const Shape& shape, std::int64_t row) {
  std::int64_t at = piece.offset;
  for (std::size_t d = shape.size() - 1; d-- > 0; row /= shape[d]) {
    const std::int64_t inside = row % shape[d] - piece.logical.start[d];
    if (inside < 0 || inside >= piece.logical.size[d]) return std::nullopt;
    at += inside * piece.strides[d];
  }
  return at;
}

// Reads one row of a tensor, and adds up its terms.
std::vector<double> read_row(const LogicalTensor& tensor, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(tensor.shape.back()), 0);
  for (const Piece& piece : tensor.pieces()) {
    const auto first = piece.replica == 0 ? find_row(piece, tensor.shape, row) : std::nullopt;
    if (!first) continue;
    for (std::int64_t i = 0; i < piece.logical.size.back(); ++i) {
      const std::int64_t at = *first + i * piece.strides.back();
      double value = 0;
      widen(piece.elements() + at * size_of(piece.entry->dtype), piece.entry->dtype, 1, &value);
      values[static_cast<std::size_t>(piece.logical.start.back() + i)] += value;
    }
  }
  return values;
}

ChosenExperts without(const ChosenExperts& experts, const ChosenExperts& others) {
  ChosenExperts rest;
  std::set_difference(experts.begin(), experts.end(), others.begin(), others.end(), std::inserter(rest, rest.end()));
  return rest;
}

// Returns how far each score must move before the exchanged experts are alike: half of what separates the highest and
// the lowest of them, whichever side chose which. A candidate that chose higher ones did not choose by the same rule.
double move_to_exchange(std::span<const double> scores, const Choice& exchanged) {
  double highest = -kNever, lowest = kNever;
  for (const ChosenExperts* experts : {&exchanged.reference, &exchanged.candidate}) {
    for (const std::int64_t expert : *experts) {
      if (expert < 0 || expert >= static_cast<std::int64_t>(scores.size())) return kNever;
      highest = std::max(highest, scores[static_cast<std::size_t>(expert)]);
      lowest = std::min(lowest, scores[static_cast<std::size_t>(expert)]);
    }
  }
  return (highest - lowest) / 2;
}

}  // namespace

Choice exchanged_in(const Choice& choice) {
  return {without(choice.reference, choice.candidate), without(choice.candidate, choice.reference)};
}

bool has_rows(const LogicalTensor& scores) { return scores.shape.size() >= 2 && scores.shape.back() > 0; }

std::int64_t count_rows(const LogicalTensor& scores) { return element_count(scores.shape) / scores.shape.back(); }

ExpertGroups groups_of(const Router& router) {
  if (router.groups == nullptr || router.groups->shape != Shape{3} || router.groups->dtype != Dtype::kInt64) return {};
  const std::int64_t experts = router.scores->shape.back();
  const std::vector<double> said = read_row(*router.groups, 0);
  const auto is_among = [](double number, std::int64_t most) {
    return number >= 1 && number <= static_cast<double>(most);
  };
  if (!is_among(said[0], experts)) return {};
  ExpertGroups groups;
  groups.count = static_cast<std::int64_t>(said[0]);
  if (experts % groups.count != 0 || !is_among(said[1], groups.count) || !is_among(said[2], experts / groups.count)) {
    return {};
  }
  groups.chosen = static_cast<std::int64_t>(said[1]);
  groups.counted = static_cast<std::int64_t>(said[2]);
  return groups;
}

double required_shift(const Router& router, std::int64_t token, const Choice& choice) {
  const LogicalTensor* tensor = router.scores;
  if (tensor == nullptr || tensor->sketched || !has_rows(*tensor) || token >= count_rows(*tensor) ||
      !is_floating(tensor->dtype) || choice.reference.size() != choice.candidate.size()) {
    return kNever;
  }
  const std::vector<double> scores = read_row(*tensor, token);
  double square = 0;
  for (const double score : scores) square += score * score;
  if (!std::isfinite(square)) return kNever;
  const ExpertGroups groups = groups_of(router);
  const double move = groups.count > 1 ? std::max(move_to_choose(scores, groups, choice.reference),
                                                  move_to_choose(scores, groups, choice.candidate))
                                       : move_to_exchange(scores, exchanged_in(choice));
  const double shift = move / std::sqrt(square);
  return std::isfinite(shift) ? shift : kNever;
}

}  // namespace ttrace
