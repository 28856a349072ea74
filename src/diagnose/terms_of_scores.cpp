// Tests whether a gradient with respect to scores differs by a term that the scores alone tell; what the loss is beside it
// need not be known. With p = softmax(x) of a row x of E scores, and T rows in all, these are
//
//   a softmax's backward    h - p sum_j h_j: h is p times what comes back, or what comes back itself to a log-softmax. Of
//                           a softmax over more scores than these a sum is left as well
//   a z-loss                2 l p / T, of the mean of l^2, l = log sum exp x
//   a load-balancing loss   E p (f - sum_j p_j f_j) / T, of E sum_j f_j P_j: P is the mean of p, and f_j the part of all
//                           choices that fell on j. Each row chooses k; they are counted over all rows, or over those of
//                           each sequence or rank, of which the loss is then the mean
//
// Nothing is fitted to the first, and one number to each of the others.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/lookup.h"
#include "diagnose/cross_entropy.h"
#include "diagnose/hypothesis.h"
#include "diagnose/slices.h"

namespace ttrace {
namespace {

constexpr std::size_t kFewestScores = 4;  // in a row
constexpr std::size_t kMostChoices = 8;   // of a row: the experts that a token goes to
constexpr std::size_t kMostExperts = 1024;
constexpr double kSameNumber = 1e-3;    // relative: numbers that are read from rounded gradients
constexpr std::size_t kFirstRows = 64;  // which mostly tell that a term is another

// Rows of scores along their last dimension.
struct RowsOfScores {
  std::size_t width = 0;
  Values scores, shares, log_sums;  // the last by row

  explicit RowsOfScores(const LogicalTensor& tensor)
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
  std::size_t count() const { return log_sums.size(); }
};

// The scores that the suspect is the gradient with respect to, as the candidate has them.
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

// What a tensor has more than the reference, as a multiple of a term.
struct TermFit {
  double times = 0, left = 0;  // the second: the norm of what it leaves
};

// Of a term that has fewer rows, in as many.
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

Values z_loss_gradient(const RowsOfScores& rows) {
  Values gradient = rows.shares;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] *= 2 * rows.log_sums[i / rows.width] / static_cast<double>(rows.count());
  }
  return gradient;
}

std::string describe_surplus(double times, std::string_view of_what) {
  return fmt::format("it has {:.4g} times the gradient of {} {} than the reference's", std::abs(times), of_what,
                     times < 0 ? "less" : "more");
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

// How the choices of rows are counted.
struct Counting {
  std::string words;
  std::vector<std::size_t> group_of;  // by row; the choices of a group's rows are counted together
};

Counting counting_along(const std::string& words, const Slices& slices) {
  Counting counting{words, {}};
  for (std::int64_t row = 0; row < slices.outer * slices.extent * slices.inner; ++row) {
    counting.group_of.push_back(static_cast<std::size_t>(row / slices.inner % slices.extent));
  }
  return counting;
}

// Nothing where a row is on several ranks, or all are on one.
std::optional<Counting> counting_by_rank(std::int64_t rows, const Suspect& suspect) {
  Counting counting{"over each rank's own rows", std::vector<std::size_t>(static_cast<std::size_t>(rows))};
  std::vector<std::int32_t> ranks(counting.group_of.size(), -1);
  std::map<std::int32_t, std::size_t> groups;
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      const auto row = static_cast<std::size_t>(place / suspect.reference.shape.back());
      if (ranks[row] >= 0 && ranks[row] != part.rank) return std::nullopt;
      ranks[row] = part.rank;
      counting.group_of[row] = groups.try_emplace(part.rank, groups.size()).first->second;
    }
  }
  if (groups.size() < 2) return std::nullopt;
  return counting;
}

std::vector<Counting> countings_of(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  const auto rows = element_count(shape) / shape.back();
  std::vector<Counting> countings = {counting_along(fmt::format("over all {} rows", rows), Slices({1, rows}, 0))};
  for (std::size_t dim = 0; shape.size() > 2 && dim + 1 < shape.size(); ++dim) {
    if (shape[dim] < 2 || shape[dim] == rows) continue;
    countings.push_back(counting_along(fmt::format("over each of the {} sequences along dimension {}", shape[dim], dim),
                                       Slices(Shape(shape.begin(), shape.end() - 1), dim)));
  }
  if (auto by_rank = counting_by_rank(rows, suspect)) countings.push_back(std::move(*by_rank));
  return countings;
}

// The largest scores of each row, the largest first.
struct Choices {
  std::size_t stored = 0;            // of a row
  std::vector<std::size_t> indices;  // by row

  Choices(const RowsOfScores& rows, std::size_t of_row) : stored(of_row) {
    std::vector<std::size_t> order(rows.width);
    for (std::size_t start = 0; start < rows.scores.size(); start += rows.width) {
      std::iota(order.begin(), order.end(), 0);
      const auto end = order.begin() + static_cast<std::ptrdiff_t>(stored);
      std::partial_sort(order.begin(), end, order.end(), [&](std::size_t a, std::size_t b) {
        const double of_a = rows.scores[start + a], of_b = rows.scores[start + b];
        return of_a != of_b ? of_a > of_b : a < b;
      });
      indices.insert(indices.end(), order.begin(), end);
    }
  }
  std::span<const std::size_t> of_row(std::size_t row, std::size_t count) const {
    return std::span(indices).subspan(row * stored, count);
  }
};

// Returns the part of all choices that fell on each score, `count` by each row, by group.
Values parts_of_choices(const RowsOfScores& rows, const Choices& choices, std::size_t count, const Counting& counting) {
  std::vector<double> sizes(*std::max_element(counting.group_of.begin(), counting.group_of.end()) + 1);
  for (const std::size_t group : counting.group_of) sizes[group] += 1;
  Values parts(sizes.size() * rows.width);
  for (std::size_t row = 0; row < rows.count(); ++row) {
    const std::size_t group = counting.group_of[row];
    for (const std::size_t j : choices.of_row(row, count)) {
      parts[group * rows.width + j] += 1 / (sizes[group] * static_cast<double>(count));
    }
  }
  return parts;
}

// A load-balancing loss, by how many choices each row has and how they are counted.
struct Balance {
  std::size_t count = 0;
  const Counting* counting = nullptr;
  Values parts;

  // Returns the gradient with respect to the scores of the first rows.
  Values gradient(const RowsOfScores& rows, std::size_t first) const {
    Values values(rows.shares.begin(), rows.shares.begin() + static_cast<std::ptrdiff_t>(first * rows.width));
    const double scale = static_cast<double>(rows.width) / static_cast<double>(rows.count());
    for (std::size_t row = 0; row < first; ++row) {
      const std::span<double> of_row = std::span(values).subspan(row * rows.width, rows.width);
      const std::span<const double> part = std::span(parts).subspan(counting->group_of[row] * rows.width, rows.width);
      const double mean = std::inner_product(of_row.begin(), of_row.end(), part.begin(), 0.0);
      for (std::size_t j = 0; j < rows.width; ++j) of_row[j] *= (part[j] - mean) * scale;
    }
    return values;
  }
  std::string describe_choices() const {
    return count == 1 ? "of the largest score of a row" : fmt::format("of the {} largest scores of a row", count);
  }
};

std::vector<Balance> balances_of(const RowsOfScores& rows, const Choices& choices,
                                 const std::vector<Counting>& countings) {
  std::vector<Balance> balances;
  for (std::size_t count = 1; count <= choices.stored; ++count) {
    for (const Counting& counting : countings) {
      balances.push_back({count, &counting, parts_of_choices(rows, choices, count, counting)});
    }
  }
  return balances;
}

// True where the rows of a tensor may sum to zero but for a part of it that has the norm `most`.
bool may_sum_to_zero(const Values& values, std::size_t width, double most) {
  double square = 0;
  for (std::size_t start = 0; start < values.size(); start += width) {
    const std::span<const double> row = std::span(values).subspan(start, width);
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    square += sum * sum;
  }
  return square <= static_cast<double>(width) * most * most;
}

// A loss that explains what the candidate has more.
struct Balancing {
  TermFit fit;
  const Balance* balance = nullptr;
  Values gradient;  // of the loss
};

// Returns the losses that explain the surplus: the nearest first, and those that rounding does not tell from it. What the
// first rows alone leave of the others is enough to go on.
std::vector<Balancing> find_balancing(const RowsOfScores& rows, const std::vector<Balance>& balances,
                                      const Values& surplus, double most, const Suspect& suspect) {
  std::vector<Balancing> found;
  for (const Balance& balance : balances) {
    if (fit_term(surplus, balance.gradient(rows, std::min(rows.count(), kFirstRows))).left > most) continue;
    Values gradient = balance.gradient(rows, rows.count());
    const TermFit fit = fit_term(surplus, gradient);
    if (fit.left <= most) found.push_back({fit, &balance, std::move(gradient)});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Balancing& a, const Balancing& b) { return a.fit.left < b.fit.left; });
  const double rounding = epsilon_of(suspect.candidate.dtype) * norm_of(suspect.candidate_values);
  std::erase_if(found, [&](const Balancing& one) {
    return one.fit.left * kLargestShareLeft > std::max(found.front().fit.left, rounding);
  });
  return found;
}

// Returns how often a side's gradient has the loss. What comes back for the choices of a row moves its other scores by a
// multiple of their shares; what these have beside it is the loss's. Nothing where that does not tell the number.
std::optional<double> times_of_balancing(const Values& gradient, const RowsOfScores& rows, const Choices& choices,
                                         const Balancing& balancing) {
  Values beside = gradient, term = balancing.gradient;
  for (std::size_t row = 0; row < rows.count(); ++row) {
    Values others(rows.shares.begin() + static_cast<std::ptrdiff_t>(row * rows.width),
                  rows.shares.begin() + static_cast<std::ptrdiff_t>((row + 1) * rows.width));
    for (const std::size_t j : choices.of_row(row, balancing.balance->count)) others[j] = 0;
    for (Values* values : {&beside, &term}) {
      const std::span<double> of_row = std::span(*values).subspan(row * rows.width, rows.width);
      const double times = fit_term(of_row, others).times;
      for (std::size_t j = 0; j < rows.width; ++j) of_row[j] = others[j] == 0 ? 0 : of_row[j] - times * others[j];
    }
  }
  const TermFit fit = fit_term(beside, term);
  const double told = std::abs(balancing.fit.times) * norm_of(term);
  if (!(told > 0) || fit.left > told * kLargestShareLeft / static_cast<double>(kFewestValues)) return std::nullopt;
  return fit.times;
}

std::string describe_times(double right, double wrong) {
  const double none = kSameNumber * std::abs(wrong - right);
  if (std::abs(right) <= none) return fmt::format("is in it {:.4g} times, and is no part of the reference's", wrong);
  if (std::abs(wrong) <= none) return fmt::format("is no part of it, and is in the reference's {:.4g} times", right);
  return fmt::format("is in it {:.4g} times, {:.4g} times as often as in the reference's", wrong, wrong / right);
}

// The loss is as often in both, of choices that are counted otherwise.
std::optional<Diagnosis> explain_by_counting(const RowsOfScores& rows, const std::vector<Balance>& balances,
                                             const Values& surplus, double most, const Suspect& suspect) {
  const auto fit_between = [&](const Balance& wrong, const Balance& right, std::size_t first) {
    const Values gradient = wrong.gradient(rows, first), other = right.gradient(rows, first);
    Values apart = gradient;
    for (std::size_t i = 0; i < apart.size(); ++i) apart[i] -= other[i];
    return fit_term(surplus, apart);
  };
  for (const Balance& wrong : balances) {
    for (const Balance& right : balances) {
      if (wrong.count != right.count || &wrong == &right) continue;
      if (fit_between(wrong, right, std::min(rows.count(), kFirstRows)).left > most) continue;
      const TermFit fit = fit_between(wrong, right, rows.count());
      if (fit.left > most || fit.times < 0) continue;  // whose gradient would drive rows to one expert
      return suspect.explained_by(
          Cause::kOtherLoss, fit.left / norm_of(suspect.candidate_values),
          fmt::format("an auxiliary loss that balances load (E sum f P, {:.4g} times) has f {} counted {}, and in the "
                      "reference {}",
                      fit.times, wrong.describe_choices(), wrong.counting->words, right.counting->words));
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> explain_by_balancing(const RowsOfScores& rows, const Values& surplus, const Suspect& suspect) {
  const double most = std::min(suspect.bound * norm_of(suspect.candidate_values), kLargestShareLeft * norm_of(surplus));
  if (rows.width > kMostExperts || !may_sum_to_zero(surplus, rows.width, most)) return std::nullopt;
  const Choices choices(rows, std::min(kMostChoices, rows.width - 1));  // who chooses all has no preference
  const std::vector<Counting> countings = countings_of(suspect);
  const std::vector<Balance> balances = balances_of(rows, choices, countings);
  const std::vector<Balancing> ways = find_balancing(rows, balances, surplus, most, suspect);
  if (ways.empty()) return explain_by_counting(rows, balances, surplus, most, suspect);
  std::vector<std::string> words;
  for (const Balancing& way : ways) {
    words.push_back(fmt::format("{}, {}", way.balance->describe_choices(), way.balance->counting->words));
  }
  const std::string loss = fmt::format("an auxiliary loss that balances load (E sum f P, f {})",
                                       fmt::join(words, "; or, which is the same here, "));
  const auto right = times_of_balancing(suspect.reference_values, rows, choices, ways[0]),
             wrong = times_of_balancing(suspect.candidate_values, rows, choices, ways[0]);
  const std::string what = right && wrong ? fmt::format("{} {}", loss, describe_times(*right, *wrong))
                                          : describe_surplus(ways[0].fit.times, loss);
  return suspect.explained_by(Cause::kOtherLoss, ways[0].fit.left / norm_of(suspect.candidate_values), what);
}

}  // namespace

std::optional<Diagnosis> other_term_of_scores(const Suspect& suspect) {
  const std::optional<RowsOfScores> rows = rows_of_scores(suspect);
  if (!rows) return std::nullopt;
  Values surplus = suspect.candidate_values;
  for (std::size_t i = 0; i < surplus.size(); ++i) surplus[i] -= suspect.reference_values[i];
  if (auto found = explain_by_z_loss(*rows, surplus, suspect)) return found;
  if (auto found = explain_by_softmax(*rows, suspect)) return found;
  return explain_by_balancing(*rows, surplus, suspect);
}

bool do_further_scores_account_for(double right, double wrong, const Suspect& suspect) {
  const std::optional<RowsOfScores> rows = rows_of_scores(suspect);
  const auto of_rows = rows ? sums_to_take_off(*rows, suspect) : std::nullopt;
  const auto further = of_rows ? find_further_scores(*rows, of_rows->sums, suspect) : std::nullopt;
  return further && is_number_met(right + further->loss, right, wrong, suspect.candidate.dtype);
}

}  // namespace ttrace
