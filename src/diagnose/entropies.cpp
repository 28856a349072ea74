// Tests whether a gradient with respect to scores is that of another cross entropy than the reference's: of other labels,
// or rows that count, divided by another number, at another temperature, smoothed otherwise, or with another z-loss.
//
// Both are read from the recorded scores and gradients (diagnose/cross_entropy.h). A hypothesis takes one thing of the
// candidate's, and all others of the reference's; it holds where the candidate's gradient is what these make of the
// candidate's scores.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/describe.h"
#include "base/lookup.h"
#include "diagnose/cross_entropy.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr double kNearNumber = 1e-4;        // relative: weights are read from fp32 gradients
constexpr double kNearZLoss = 1e-2;         // relative: it is small beside the rest
constexpr std::size_t kFewestLabels = 8;    // that tell a displacement
constexpr std::int64_t kMostDisplaced = 3;  // rows

bool are_near(double a, double b, double bound) { return std::abs(a - b) <= bound * std::abs(b); }

// The gradients of one tensor on both sides, with what was read of them.
struct BothEntropies {
  CrossEntropy reference, candidate;
  Values reference_scores, scores;  // the second are the candidate's
  std::int64_t length = 1;          // rows of a sequence
  std::vector<std::int32_t> ranks;  // of each row; -1 where that is not one
};

std::optional<CrossEntropy> read_of(const LogicalTensor& scores, const Values& gradient, Dtype dtype) {
  const double bound = kReadingSteps * epsilon_of(dtype);
  return read_cross_entropy(values_of(scores), gradient, static_cast<std::size_t>(scores.shape.back()), bound);
}

std::vector<std::int32_t> ranks_of_score_rows(const Suspect& suspect) {
  const std::int64_t classes = suspect.reference.shape.back();
  std::vector<std::int32_t> ranks(suspect.candidate_values.size() / static_cast<std::size_t>(classes), -1);
  std::set<std::size_t> shared;
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      const auto row = static_cast<std::size_t>(place / classes);
      if (ranks[row] >= 0 && ranks[row] != part.rank) shared.insert(row);
      ranks[row] = part.rank;
    }
  }
  for (const std::size_t row : shared) ranks[row] = -1;
  return ranks;
}

std::optional<BothEntropies> read_both(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  if (id.kind != Kind::kGradOutput || suspect.reference.shape.size() < 2) return std::nullopt;
  const LogicalTensor* reference =
      find_tensor(suspect.evidence.reference, suspect.reference.id.with_kind(Kind::kOutput));
  const LogicalTensor* candidate = find_tensor(suspect.evidence.candidate, id.with_kind(Kind::kOutput));
  if (reference == nullptr || candidate == nullptr || !is_comparable(*reference, suspect.reference) ||
      !is_comparable(*candidate, suspect.reference)) {
    return std::nullopt;
  }
  const auto right = read_of(*reference, suspect.reference_values, suspect.reference.dtype);
  if (!right) return std::nullopt;
  const auto wrong = read_of(*candidate, suspect.candidate_values, suspect.candidate.dtype);
  if (!wrong) return std::nullopt;
  return BothEntropies{*right,
                       *wrong,
                       values_of(*reference),
                       values_of(*candidate),
                       suspect.reference.shape[suspect.reference.shape.size() - 2],
                       ranks_of_score_rows(suspect)};
}

// Rows whose gradients are not zero, by micro-batch of the suspect's iteration.
std::map<std::int32_t, std::int64_t> counted_by_microbatch(const Suspect& suspect, const Alignment& side) {
  std::map<std::int32_t, std::int64_t> counted;
  for (const auto& [id, tensor] : side.tensors) {
    if (id.kind != Kind::kGradOutput || id.iteration != suspect.candidate.id.iteration ||
        id.name != suspect.candidate.id.name || !is_comparable(tensor, suspect.reference)) {
      continue;
    }
    const Values values = values_of(tensor);
    const auto classes = static_cast<std::ptrdiff_t>(tensor.shape.back());
    for (auto row = values.begin(); row != values.end(); row += classes) {
      counted[id.microbatch] += std::any_of(row, row + classes, [](double value) { return value != 0; });
    }
  }
  return counted;
}

struct NamedDivisor {
  double value = 0;
  std::string words;
  bool is_own = false;  // of the micro-batch, or of each rank, where the loss is of more
};

// What losses are divided by, of which the first that fits is named. Numbers that are simple multiples of each other are
// left out: a factor of 2 says as much, whatever made it.
std::vector<NamedDivisor> divisors_of(const Suspect& suspect, const Alignment& side, std::int64_t own) {
  const auto counted = counted_by_microbatch(suspect, side);
  std::int64_t all = 0;
  for (const auto& [microbatch, rows] : counted) all += rows;
  const auto microbatches = static_cast<std::int64_t>(counted.size());
  std::vector<NamedDivisor> numbers;
  const std::string of_all = microbatches > 1 ? " of all micro-batches" : "";
  const auto add = [&](std::int64_t value, std::string words, bool is_own = false) {
    numbers.push_back({static_cast<double>(value), std::move(words), is_own});
  };
  add(all, fmt::format("the labels that count{}", of_all));
  if (own * microbatches != all) {
    add(own, "the labels that count in its own micro-batch", true);
    add(own * microbatches,
        fmt::format("the {} labels that count in its own micro-batch, times the {} micro-batches", own, microbatches),
        true);
  }
  const std::int64_t rows = static_cast<std::int64_t>(suspect.reference_values.size()) / suspect.reference.shape.back();
  if (rows * microbatches != all && rows * microbatches != 2 * all) {
    add(rows * microbatches, fmt::format("all rows{}, whether they count or not", of_all));
  }
  add(1, "the loss is a sum over the labels");
  add(all + 1, fmt::format("the {} labels that count{}, and one too many", all, of_all));
  add(all - 1, fmt::format("the {} labels that count{}, but for one", all, of_all));
  if (own * microbatches != all) {
    add(own + 1, fmt::format("the {} labels that count in its own micro-batch, and one too many", own), true);
  }
  return numbers;
}

const NamedDivisor* name_of_divisor(double value, const std::vector<NamedDivisor>& numbers) {
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const NamedDivisor& number) {
    return are_near(value, number.value, kNearNumber);
  });
  return found == numbers.end() ? nullptr : &*found;
}

// Returns the weight that all rows have; nothing where they have several.
std::optional<double> weight_of_all(const CrossEntropy& entropy) {
  std::optional<double> weight;
  for (const auto& row : entropy.rows) {
    if (!row) continue;
    if (weight && !are_near(row->weight, *weight, kNearNumber)) return std::nullopt;
    if (!weight) weight = row->weight;
  }
  return weight;
}

// Returns, by rank, the weight of its rows over the reference's; nothing where these differ on a rank, or a row is on
// several.
std::optional<std::map<std::int32_t, double>> factors_by_rank(const BothEntropies& both) {
  std::map<std::int32_t, double> factors;
  for (std::size_t i = 0; i < both.reference.rows.size(); ++i) {
    const auto &right = both.reference.rows[i], &wrong = both.candidate.rows[i];
    if (!right && !wrong) continue;
    if (!right || !wrong || both.ranks[i] < 0) return std::nullopt;
    const double factor = wrong->weight / right->weight;
    const auto [at, is_new] = factors.emplace(both.ranks[i], factor);
    if (!is_new && !are_near(factor, at->second, kNearNumber)) return std::nullopt;
  }
  return factors;
}

std::string describe_divisor(double value, const NamedDivisor* number) {
  return fmt::format("{:.6g}{}", value, number == nullptr ? "" : fmt::format(" ({})", number->words));
}

struct Claim {
  Cause cause = Cause::kOtherLoss;
  std::string what;     // empty: there is none
  std::string group{};  // of the diagnosis
};

// Says that each rank divides by the labels that it holds itself.
Claim describe_divisors_of_ranks(const BothEntropies& both, double divisor) {
  const auto factors = factors_by_rank(both);
  if (!factors || factors->size() < 2) return {};
  std::map<std::int32_t, std::int64_t> counted;
  for (std::size_t i = 0; i < both.ranks.size(); ++i) counted[both.ranks[i]] += both.candidate.rows[i].has_value();
  std::vector<std::string> words;
  std::optional<double> times;  // the divisor of a rank over its labels
  for (const auto& [rank, factor] : *factors) {
    const double of_label = divisor / factor / static_cast<double>(counted.at(rank));
    if (times && !are_near(of_label, *times, kNearNumber)) return {};
    times = of_label;
    words.push_back(fmt::format("{} on rank {}", counted.at(rank), rank));
  }
  return {Cause::kMeanOfMeans,
          fmt::format("each rank's part of the cross entropy is divided by the rank's own number of labels that count "
                      "({}), in place of that of all",
                      comma_list(words))};
}

// Returns the number that rows which both count weigh in the candidate over what they weigh in the reference; nothing
// where they are several.
std::optional<double> factor_of_weights(const BothEntropies& both) {
  std::optional<double> factor;
  for (std::size_t i = 0; i < both.ranks.size(); ++i) {
    const auto &right = both.reference.rows[i], &wrong = both.candidate.rows[i];
    if (!right || !wrong) continue;
    const double of_row = wrong->weight / right->weight;
    if (factor && !are_near(of_row, *factor, kNearNumber)) return std::nullopt;
    if (!factor) factor = of_row;
  }
  return factor;
}

bool is_one(const std::optional<double>& factor) { return factor && are_near(*factor, 1, kNearNumber); }

bool count_the_same(const BothEntropies& both) {
  return std::equal(both.reference.rows.begin(), both.reference.rows.end(), both.candidate.rows.begin(),
                    [](const auto& right, const auto& wrong) { return right.has_value() == wrong.has_value(); });
}

// The weights of a rank's rows, as a line makes them of the reference's, and their own mean.
struct WeightsOfRank {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;

  double slope() const { return (xy - x * y / n) / (xx - x * x / n); }
  double offset() const { return (y - slope() * x) / n; }
};

std::optional<std::map<std::int32_t, WeightsOfRank>> lines_by_rank(const BothEntropies& both) {
  std::map<std::int32_t, WeightsOfRank> lines;
  double largest = 0;
  for (std::size_t i = 0; i < both.ranks.size(); ++i) {
    const auto &right = both.reference.rows[i], &wrong = both.candidate.rows[i];
    if (!right || !wrong || both.ranks[i] < 0) return std::nullopt;
    WeightsOfRank& line = lines[both.ranks[i]];
    line.n += 1;
    line.x += right->weight;
    line.y += wrong->weight;
    line.xx += right->weight * right->weight;
    line.xy += right->weight * wrong->weight;
    largest = std::max(largest, std::abs(wrong->weight));
  }
  for (const auto& [rank, line] : lines) {
    if (line.n < static_cast<double>(kFewestLabels) || !(line.xx - line.x * line.x / line.n > 0)) return std::nullopt;
  }
  for (std::size_t i = 0; i < both.ranks.size(); ++i) {
    const WeightsOfRank& line = lines.at(both.ranks[i]);
    const double predicted = line.slope() * both.reference.rows[i]->weight + line.offset();
    if (std::abs(predicted - both.candidate.rows[i]->weight) > kNearNumber * largest) return std::nullopt;
  }
  return lines;
}

// True where the weights sum to zero on every rank, and the reference's over all of them alone.
bool are_centred_on_ranks(const std::map<std::int32_t, WeightsOfRank>& lines) {
  double sum = 0, square = 0, n = 0, wrong = 0, right = 0;
  for (const auto& [rank, line] : lines) {
    sum += line.x;
    square += line.xx;
    n += line.n;
    wrong = std::max(wrong, std::abs(line.y) / line.n);
    right = std::max(right, std::abs(line.x) / line.n);
  }
  const double near = kNearNumber * std::sqrt(square / n);
  return wrong <= near && std::abs(sum) / n <= near && right > near;
}

constexpr std::string_view kWhatWeighs =
    "advantages, a beta, log-probabilities of another model, or what else multiplies";

Claim of_weights(Cause cause, std::string what) { return {cause, std::move(what), std::string(kOfWeights)}; }

// Says that all rows of a rank have one number more of the reference's weights.
Claim describe_factors_of_weights(const std::map<std::int32_t, double>& factors) {
  constexpr double kNearMean = 1e-3;  // of how far the numbers are from 1: weights are read from fp32 gradients
  double sum = 0, farthest = 0;
  std::vector<std::string> words;
  for (const auto& [rank, factor] : factors) {
    sum += 1 / factor;
    farthest = std::max(farthest, std::abs(factor - 1));
    words.push_back(fmt::format("{:.4g} on rank {}", factor, rank));
  }
  const std::string what =
      fmt::format("the weights of rows are the reference's times a number on each rank: {}", comma_list(words));
  if (std::abs(sum / static_cast<double>(factors.size()) - 1) > kNearMean * farthest) {
    return of_weights(Cause::kRankFactor, what);
  }
  return of_weights(Cause::kMeanOfMeans,
                    what +
                        "; one over these numbers averages 1, as where each rank divides by the sum of its own "
                        "weights in place of the mean of all ranks'");
}

// Says what becomes of the weights on each rank by a line: a shift beside a factor.
Claim describe_lines_of_weights(const std::map<std::int32_t, WeightsOfRank>& lines) {
  std::vector<std::string> words;
  for (const auto& [rank, line] : lines) {
    words.push_back(fmt::format("{:.4g} times it and {:.4g} on rank {}", line.slope(), line.offset(), rank));
  }
  if (lines.size() > 1 && are_centred_on_ranks(lines)) {
    return of_weights(
        Cause::kOwnSamples,
        fmt::format(
            "on each rank the weights of its rows ({} log-probabilities) are shifted and scaled so that they sum "
            "to zero there, and in the reference over all ranks: each rank normalises them by its own mean ({})",
            kWhatWeighs, comma_list(words)));
  }
  return of_weights(Cause::kRankFactor,
                    fmt::format("on each rank the weight of a row is a multiple of the reference's, and a number: {}",
                                comma_list(words)));
}

// What the weights of rows are the reference's times.
struct Factors {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  bool are_of_samples = true;             // all rows of a sample have the same
  std::set<std::int32_t> ranks, changed;  // that hold the rows, and those of them where some row has another
};

std::optional<Factors> factors_of_rows(const BothEntropies& both) {
  Factors factors;
  double of_sample = 0;
  for (std::size_t i = 0; i < both.ranks.size(); ++i) {
    const auto &right = both.reference.rows[i], &wrong = both.candidate.rows[i];
    const bool begins_sample = static_cast<std::int64_t>(i) % both.length == 0;
    if (begins_sample) of_sample = 0;
    if (!right) continue;
    if (right->label != wrong->label) return std::nullopt;
    const double factor = wrong->weight / right->weight;
    factors.least = std::min(factors.least, factor);
    factors.most = std::max(factors.most, factor);
    factors.ranks.insert(both.ranks[i]);
    if (!are_near(factor, 1, kNearNumber)) factors.changed.insert(both.ranks[i]);
    factors.are_of_samples = factors.are_of_samples && (of_sample == 0 || are_near(factor, of_sample, kNearNumber));
    of_sample = factor;
  }
  factors.are_of_samples = factors.are_of_samples && both.length > 1;
  return factors;
}

// Says what becomes of weights that rows have each for itself, as advantages are.
Claim describe_weights_of_rows(const BothEntropies& both) {
  const std::optional<Factors> factors = factors_of_rows(both);
  if (!factors) return {};
  if (const auto of_ranks = factors_by_rank(both); of_ranks && of_ranks->size() > 1) {
    return describe_factors_of_weights(*of_ranks);
  }
  if (const auto lines = lines_by_rank(both)) return describe_lines_of_weights(*lines);
  const std::vector<std::int32_t> changed(factors->changed.begin(), factors->changed.end());
  const bool is_on_some = changed.size() < factors->ranks.size() && !factors->ranks.contains(-1);
  return of_weights(Cause::kOtherLoss,
                    fmt::format("the rows have other weights{} ({} log-probabilities), {:.4g} to {:.4g} times the "
                                "reference's{}",
                                is_on_some ? " on " + describe_ranks(changed) : "", kWhatWeighs, factors->least,
                                factors->most, factors->are_of_samples ? ", the same for all rows of a sample" : ""));
}

bool have_the_same_labels(const BothEntropies& both) {
  return std::equal(
      both.reference.rows.begin(), both.reference.rows.end(), both.candidate.rows.begin(),
      [](const auto& right, const auto& wrong) { return !right || !wrong || right->label == wrong->label; });
}

Claim describe_weights(const BothEntropies& both, const Suspect& suspect) {
  const std::optional<double> factor = factor_of_weights(both);
  if (!count_the_same(both) || is_one(factor) || (factor && !have_the_same_labels(both))) return {};
  const auto right = weight_of_all(both.reference), wrong = weight_of_all(both.candidate);
  if (!right) return factor ? Claim{} : describe_weights_of_rows(both);
  if (!wrong) return describe_divisors_of_ranks(both, 1 / *right);
  const std::vector<NamedDivisor> of_reference =
      divisors_of(suspect, suspect.evidence.reference, both.reference.counted());
  const std::vector<NamedDivisor> of_candidate =
      divisors_of(suspect, suspect.evidence.candidate, both.candidate.counted());
  const NamedDivisor *by = name_of_divisor(1 / *wrong, of_candidate), *of = name_of_divisor(1 / *right, of_reference);
  if (by == nullptr) {
    return {Cause::kOtherLoss,
            fmt::format("the cross entropy, and all gradients that come from it alone, are {:.4g} times the "
                        "reference's: it is divided by {:.6g}, the reference's by {}",
                        *wrong / *right, 1 / *wrong, describe_divisor(1 / *right, of))};
  }
  return {by->is_own && of != nullptr && !of->is_own ? Cause::kMeanOfMeans : Cause::kOtherLoss,
          fmt::format("the cross entropy is divided by {}, the reference's by {}", describe_divisor(1 / *wrong, by),
                      describe_divisor(1 / *right, of))};
}

// Returns by how many rows of its sequence the candidate's `value_of` is displaced; 0 where by none.
template <typename ValueOf>
std::int64_t displacement(const BothEntropies& both, const ValueOf& value_of, bool of_counted_alone) {
  const auto rows = static_cast<std::int64_t>(both.reference.rows.size());
  for (std::int64_t distance = 1; distance <= kMostDisplaced; ++distance) {
    for (const std::int64_t by : {distance, -distance}) {
      std::size_t met = 0;
      bool holds = true;
      for (std::int64_t i = 0; i < rows && holds; ++i) {
        const std::int64_t from = i - by;
        if (from < 0 || from >= rows || from / both.length != i / both.length) continue;
        const auto &right = both.reference.rows[static_cast<std::size_t>(from)],
                   &wrong = both.candidate.rows[static_cast<std::size_t>(i)];
        if (of_counted_alone && !(right && wrong)) continue;
        holds = value_of(right) == value_of(wrong);
        ++met;
      }
      if (holds && met >= kFewestLabels) return by;
    }
  }
  return 0;
}

std::string describe_displaced(std::int64_t by) {
  if (by == 0) return "";
  return fmt::format(": those of {} row{} {}", std::abs(by), std::abs(by) == 1 ? "" : "s", by > 0 ? "before" : "after");
}

// Names the only rank that holds what differs; empty where several do.
std::string describe_only_rank(const BothEntropies& both, const std::vector<bool>& differs) {
  std::set<std::int32_t> with, all(both.ranks.begin(), both.ranks.end());
  for (std::size_t i = 0; i < differs.size(); ++i) {
    if (differs[i]) with.insert(both.ranks[i]);
  }
  if (with.size() != 1 || all.size() < 2 || *with.begin() < 0) return "";
  return fmt::format(", all on rank {}", *with.begin());
}

Claim describe_labels(const BothEntropies& both) {
  const std::optional<double> factor = factor_of_weights(both);
  if (!count_the_same(both) || !factor) return {};
  std::vector<bool> differs(both.ranks.size());
  std::int64_t others = 0;
  for (std::size_t i = 0; i < differs.size(); ++i) {
    const auto &right = both.reference.rows[i], &wrong = both.candidate.rows[i];
    differs[i] = right && wrong && right->label != wrong->label;
    others += differs[i];
  }
  if (others == 0) return {};
  const std::int64_t by = displacement(both, [](const auto& row) { return row ? row->label : 0; }, true);
  return {Cause::kOtherLoss,
          fmt::format("{} of the {} rows that count have other labels than the reference's{}{}{}", others,
                      both.candidate.counted(), describe_displaced(by), describe_only_rank(both, differs),
                      is_one(factor) ? "" : fmt::format("; all weigh {:.4g} times as much", *factor))};
}

Claim describe_counted(const BothEntropies& both) {
  const std::optional<double> factor = factor_of_weights(both);
  if (!factor) return {};
  std::vector<bool> differs(both.ranks.size());
  std::int64_t more = 0, less = 0;
  for (std::size_t i = 0; i < differs.size(); ++i) {
    const auto &of_reference = both.reference.rows[i], &of_candidate = both.candidate.rows[i];
    if (of_reference && of_candidate && of_reference->label != of_candidate->label) return {};
    const bool right = both.reference.rows[i].has_value(), wrong = both.candidate.rows[i].has_value();
    differs[i] = right != wrong;
    more += wrong && !right;
    less += right && !wrong;
  }
  if (more == 0 && less == 0) return {};
  const std::int64_t by = displacement(both, [](const auto& row) { return row.has_value(); }, false);
  std::vector<std::string> words;
  if (more > 0) words.push_back(fmt::format("counts {} that the reference's ignores", more));
  if (less > 0) words.push_back(fmt::format("ignores {} that the reference's counts", less));
  return {
      Cause::kOtherLoss,
      fmt::format("of {} rows the cross entropy {}{}{}{}", both.ranks.size(), fmt::join(words, ", and "),
                  describe_only_rank(both, differs), by == 0 ? "" : fmt::format(": its mask is displaced by {}", by),
                  is_one(factor) ? "" : fmt::format("; the others weigh {:.4g} times as much", *factor))};
}

Claim describe_temperature(const CrossEntropy& right, const CrossEntropy& wrong) {
  if (are_near(wrong.temperature, right.temperature, kNearNumber)) return {};
  return {Cause::kOtherLoss,
          fmt::format("the scores are divided by a temperature of {:.4g} before the cross entropy, the "
                      "reference's by {:.4g}",
                      wrong.temperature, right.temperature)};
}

Claim describe_smoothing(const CrossEntropy& right, const CrossEntropy& wrong) {
  if (std::abs(wrong.smoothing - right.smoothing) <= kNearNumber) return {};
  return {Cause::kOtherLoss,
          fmt::format("labels of the cross entropy are smoothed by {:.4g}, the reference's by {:.4g}", wrong.smoothing,
                      right.smoothing)};
}

Claim describe_z_loss(const CrossEntropy& right, const CrossEntropy& wrong) {
  if (wrong.z_loss == right.z_loss || are_near(wrong.z_loss, right.z_loss, kNearZLoss)) return {};
  if (wrong.z_loss == 0) {
    return {Cause::kOtherLoss,
            fmt::format("it is a cross entropy without a z-loss, which the reference has {:.4g} times", right.z_loss)};
  }
  if (right.z_loss == 0) {
    return {
        Cause::kOtherLoss,
        fmt::format("{:.4g} times a z-loss is added to the cross entropy, and none in the reference", wrong.z_loss)};
  }
  return {Cause::kOtherLoss,
          fmt::format("{:.4g} times the z-loss is added to the cross entropy, {:.4g} times as much as in the reference",
                      wrong.z_loss, wrong.z_loss / right.z_loss)};
}

}  // namespace

namespace {

// A loss that is more than a cross entropy, with an entropy bonus beside it or a penalty, has the gradient of one in its
// error where that is of weights alone: rows with labels, by how much they weigh more or less.
std::optional<Diagnosis> explain_by_weights_in_error(const Suspect& suspect) {
  const TensorId& id = suspect.candidate.id;
  if (id.kind != Kind::kGradOutput || suspect.reference.shape.size() < 2) return std::nullopt;
  const LogicalTensor* scores = find_tensor(suspect.evidence.candidate, id.with_kind(Kind::kOutput));
  if (scores == nullptr || !is_comparable(*scores, suspect.reference)) return std::nullopt;
  Values error = suspect.candidate_values;
  for (std::size_t i = 0; i < error.size(); ++i) error[i] -= suspect.reference_values[i];
  const double near = kReadingSteps * epsilon_of(suspect.candidate.dtype) * norm_of(suspect.reference_values) /
                      std::max(norm_of(error), std::numeric_limits<double>::min());
  if (near > kLargestShareLeft) return std::nullopt;
  const Values values = values_of(*scores);
  const auto more = read_cross_entropy(values, error, static_cast<std::size_t>(scores->shape.back()), near);
  if (!more || more->temperature != 1 || more->smoothing != 0 || more->z_loss != 0) return std::nullopt;
  Values prediction = more->gradient_of(values);
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const auto& row : more->rows) {
    if (!row) continue;
    least = std::min(least, row->weight);
    most = std::max(most, row->weight);
  }
  for (std::size_t i = 0; i < prediction.size(); ++i) prediction[i] += suspect.reference_values[i];
  auto found = suspect.explained_by(
      Cause::kOtherLoss, prediction,
      fmt::format(
          "its rows have other weights ({} the log-probability of a row's label), by {:.4g} to {:.4g} more, and "
          "what else is in it is right",
          kWhatWeighs, least, most));
  if (found) found->group = kOfWeights;
  return found;
}

}  // namespace

std::optional<Diagnosis> other_cross_entropy(const Suspect& suspect) {
  const std::optional<BothEntropies> both = read_both(suspect);
  if (!both) return explain_by_weights_in_error(suspect);
  const CrossEntropy &right = both->reference, &wrong = both->candidate;
  const auto holds = [&](const CrossEntropy& predicted, const Claim& claim) -> std::optional<Diagnosis> {
    if (claim.what.empty()) return std::nullopt;
    auto found = suspect.explained_by(claim.cause, predicted.gradient_of(both->scores), claim.what);
    if (found) found->group = claim.group;
    return found;
  };
  CrossEntropy predicted = right;
  predicted.temperature = wrong.temperature;
  if (auto found = holds(predicted, describe_temperature(right, wrong))) return found;
  predicted = right;
  predicted.smoothing = wrong.smoothing;
  if (auto found = holds(predicted, describe_smoothing(right, wrong))) return found;
  predicted = right;
  predicted.z_loss = wrong.z_loss;
  if (auto found = holds(predicted, describe_z_loss(right, wrong))) return found;
  predicted = right;
  predicted.rows = wrong.rows;
  for (const Claim& claim : {describe_counted(*both), describe_labels(*both), describe_weights(*both, suspect)}) {
    if (auto found = holds(predicted, claim)) return found;
  }
  return std::nullopt;
}

bool does_entropy_account_for(double right, double wrong, const Suspect& suspect) {
  const std::optional<BothEntropies> both = read_both(suspect);
  if (!both) return false;
  const double change = both->candidate.value_of(both->scores) - both->reference.value_of(both->reference_scores);
  return is_number_met(right + change, right, wrong, suspect.candidate.dtype);
}

}  // namespace ttrace
