#include "diagnose/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/lookup.h"

namespace ttrace {

RowsOfScores::RowsOfScores(const LogicalTensor& tensor)
    : width(static_cast<std::size_t>(tensor.shape.back())), scores(values_of(tensor)), shares(scores) {
  for (std::size_t start = 0; start < shares.size(); start += width) {
    const std::span<double> row = std::span(shares).subspan(start, width);
    const double largest = *std::max_element(row.begin(), row.end());
    for (double& share : row) share = std::exp(share - largest);
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& share : row) share /= sum;
    log_sums.push_back(largest + std::log(sum));
  }
}

std::optional<RowsOfScores> rows_of_scores(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  if ((id.kind != Kind::kGradOutput && id.kind != Kind::kGradInput) || suspect.candidate.shape.size() < 2)
    return std::nullopt;
  const Kind kind = id.kind == Kind::kGradOutput ? Kind::kOutput : Kind::kInput;
  const LogicalTensor* scores = find_tensor(suspect.evidence.candidate, id.with_kind(kind));
  if (scores == nullptr || !is_comparable(*scores, suspect.candidate) || scores->shape.back() < 2) return std::nullopt;
  RowsOfScores rows(*scores);
  if (!std::isfinite(norm_of(rows.log_sums))) return std::nullopt;
  return rows;
}

Values surplus_of(const Suspect& suspect) {
  Values surplus = suspect.candidate_values;
  for (std::size_t i = 0; i < surplus.size(); ++i) surplus[i] -= suspect.reference_values[i];
  return surplus;
}

TermFit fit_term(std::span<const double> surplus, const Values& term) {
  double dot = 0, square = 0, of_surplus = 0;
  for (std::size_t i = 0; i < term.size(); ++i) {
    dot += surplus[i] * term[i];
    square += term[i] * term[i];
    of_surplus += surplus[i] * surplus[i];
  }
  if (!(square > 0)) return {0, std::sqrt(of_surplus)};
  return {dot / square, std::sqrt(std::max(0.0, of_surplus - dot * dot / square))};
}

std::string describe_surplus(double times, std::string_view of_what) {
  return fmt::format("it has {:.4g} times the gradient of {} {} than the reference's", std::abs(times), of_what,
                     times < 0 ? "less" : "more");
}

}  // namespace ttrace
