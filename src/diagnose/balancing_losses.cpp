// Tests whether a gradient with respect to scores has more or less than the reference's of a load-balancing loss, which the
// scores alone tell; what the loss is beside it need not be known.
//
// With p = softmax(x) of a row x of E scores, and T rows in all, the loss is E sum_j f_j P_j: P is the mean of p, and f_j the
// part of all choices that fell on j, k by each row. They are counted over all rows, or over those of each sequence or
// rank, of which the loss is then the mean. Its gradient is
//
//   E p (f - sum_j p_j f_j) / T
//
// and one number is fitted to it.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "diagnose/scores.h"
#include "diagnose/slices.h"

namespace ttrace {
namespace {

constexpr std::size_t kMostChoices = 8;  // of a row: the experts that a token goes to
constexpr std::size_t kMostExperts = 1024;
constexpr std::size_t kFirstRows = 64;        // which mostly tell that a term is another
constexpr double kLargestShareOfNone = 1e-3;  // of how often two sides have the loss: what rounding makes of none

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
  const double none = kLargestShareOfNone * std::abs(wrong - right);
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

}  // namespace

std::optional<Diagnosis> other_balancing(const Suspect& suspect) {
  const std::optional<RowsOfScores> of_suspect = rows_of_scores(suspect);
  if (!of_suspect || of_suspect->width > kMostExperts) return std::nullopt;
  const RowsOfScores& rows = *of_suspect;
  const Values surplus = surplus_of(suspect);
  const double most = std::min(suspect.bound * norm_of(suspect.candidate_values), kLargestShareLeft * norm_of(surplus));
  if (!may_sum_to_zero(surplus, rows.width, most)) return std::nullopt;
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

}  // namespace ttrace
