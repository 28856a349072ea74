// Tests whether a gradient with respect to scores differs by a term that the scores alone tell; what the loss is beside it
// need not be known. With p = softmax(x) of a row x of scores, and T rows in all, these are
//
//   a softmax's backward   h - p sum_j h_j: h is p times what comes back, or what comes back itself to a log-softmax. Of a
//                          softmax over more scores than these a sum is left as well
//   a z-loss               2 l p / T, of the mean of l^2, l = log sum exp x
//
// Nothing is fitted to the first, and one number to the second. balancing_losses.cpp has a third.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnose/cross_entropy.h"
#include "diagnose/scores.h"

namespace ttrace {
namespace {

constexpr std::size_t kFewestScores = 4;  // in a row
constexpr double kSameNumber = 1e-3;      // relative: numbers that are read from rounded gradients

Values z_loss_gradient(const RowsOfScores& rows) {
  Values gradient = rows.shares;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] *= 2 * rows.log_sums[i / rows.width] / static_cast<double>(rows.count());
  }
  return gradient;
}

// Where rows have one l, a z-loss adds to all of them the same multiple of their shares, and so may something else.
std::optional<Diagnosis> explain_by_z_loss(const RowsOfScores& rows, const Values& surplus, const Suspect& suspect) {
  const TermFit fit = fit_term(surplus, z_loss_gradient(rows));
  const double bound = suspect.bound * norm_of(suspect.candidate_values);
  if (fit.left > bound || fit.left > kLargestShareLeft * fit_term(surplus, rows.shares).left) return std::nullopt;
  return suspect.explained_by(
      Cause::kOtherLoss, fit.left / norm_of(suspect.candidate_values),
      describe_surplus(fit.times, "a z-loss (the mean of the squares of the scores' log-sum-exp)"));
}

// What the candidate's sum of a row's exponentials has more than the scores make, the same in all rows of a cross entropy.
struct FurtherScores {
  double sum = 0;
  double loss = 0;  // what they add to it
};

// With K more in the sum Z, a row's shares add up to Z / (Z + K), and its gradient to -w K / (Z + K) where it weighs w.
std::optional<FurtherScores> find_further_scores(const RowsOfScores& rows, const Values& sums, const Suspect& suspect) {
  const auto entropy = read_cross_entropy(rows.scores, suspect.reference_values, rows.width,
                                          kReadingSteps * epsilon_of(suspect.reference.dtype));
  if (!entropy || entropy->temperature != 1 || entropy->smoothing != 0 || entropy->z_loss != 0) return std::nullopt;
  std::optional<FurtherScores> found;
  for (std::size_t row = 0; row < rows.count(); ++row) {
    if (!entropy->rows[row] && sums[row] == 0) continue;
    if (!entropy->rows[row]) return std::nullopt;
    const double weight = entropy->rows[row]->weight;
    const double sum = -sums[row] / (weight + sums[row]) * std::exp(rows.log_sums[row]);
    if (!(sum > 0) || !std::isfinite(sum)) return std::nullopt;
    if (!found) found = FurtherScores{sum, 0};
    if (std::abs(sum - found->sum) > kSameNumber * found->sum) return std::nullopt;
    found->loss += weight * std::log1p(sum / std::exp(rows.log_sums[row]));
  }
  return found;
}

std::string describe_further_scores(double sum) {
  const double count = std::round(sum);
  const bool are_zeros = count > 0 && std::abs(sum - count) <= kSameNumber * count;
  return fmt::format(
      "it is the gradient of a cross entropy whose softmax is over more scores than these: the sum of exponentials is "
      "larger by {:.4g} in each row{}",
      sum,
      are_zeros ? fmt::format(", as {:.0f} further scores of 0 make it (padding that is not masked?)", count) : "");
}

std::string describe_sums(Values sums) {
  std::erase(sums, 0);  // of rows that the loss ignores
  const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
  if (*most - *least > kSameNumber * std::abs(*most)) {
    return fmt::format(
        "its rows sum to {:.4g} to {:.4g}, and the reference's to 0: with the softmax of a row's scores times the sum "
        "taken off, it is the reference's. So it is where a softmax's backward is not whole, or the softmax is over "
        "more scores than these",
        *least, *most);
  }
  return fmt::format(
      "the backward of a softmax or log-softmax is not whole, in a part of the loss or in all of it: the softmax of a "
      "row's scores times the sum of the row's gradient is not taken off ({:.4g} in {} rows, and 0 in the reference), "
      "and with that it is the reference's",
      *most, sums.size());
}

struct RowSums {
  Values sums;
  double residual = 0;
};

// Returns the sums of the gradient's rows, if it is the reference's once the shares times these are taken off.
std::optional<RowSums> sums_to_take_off(const RowsOfScores& rows, const Suspect& suspect) {
  if (rows.width < kFewestScores) return std::nullopt;
  Values whole = suspect.candidate_values, sums;
  for (std::size_t start = 0; start < whole.size(); start += rows.width) {
    const std::span<double> row = std::span(whole).subspan(start, rows.width);
    sums.push_back(std::accumulate(row.begin(), row.end(), 0.0));
    for (std::size_t j = 0; j < rows.width; ++j) row[j] -= sums.back() * rows.shares[start + j];
  }
  const double residual = relative_distance(whole, suspect.reference_values);
  if (!suspect.explained_by(Cause::kOtherLoss, residual, "")) return std::nullopt;
  return RowSums{std::move(sums), residual};
}

// The reference's gradient is what a softmax's backward makes of the candidate's.
std::optional<Diagnosis> explain_by_softmax(const RowsOfScores& rows, const Suspect& suspect) {
  const std::optional<RowSums> of_rows = sums_to_take_off(rows, suspect);
  if (!of_rows) return std::nullopt;
  const std::optional<FurtherScores> further = find_further_scores(rows, of_rows->sums, suspect);
  return suspect.explained_by(Cause::kOtherLoss, of_rows->residual,
                              further ? describe_further_scores(further->sum) : describe_sums(of_rows->sums));
}

}  // namespace

std::optional<Diagnosis> other_term_of_scores(const Suspect& suspect) {
  const std::optional<RowsOfScores> rows = rows_of_scores(suspect);
  if (!rows) return std::nullopt;
  if (auto found = explain_by_z_loss(*rows, surplus_of(suspect), suspect)) return found;
  return explain_by_softmax(*rows, suspect);
}

bool do_further_scores_account_for(double right, double wrong, const Suspect& suspect) {
  const std::optional<RowsOfScores> rows = rows_of_scores(suspect);
  const auto of_rows = rows ? sums_to_take_off(*rows, suspect) : std::nullopt;
  const auto further = of_rows ? find_further_scores(*rows, of_rows->sums, suspect) : std::nullopt;
  return further && is_number_met(right + further->loss, right, wrong, suspect.candidate.dtype);
}

}  // namespace ttrace
