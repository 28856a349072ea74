// Tests whether the gradient of a loss has the reference's values with other weights: each sample's, or row's, times a
// number of its own; each rank's part, or micro-batch's; or what is positive times one number and what is negative times
// another.
//
// A loss that is a sum over samples hands each of them its part, whatever it is a function of, and so one that weighs them
// otherwise has multiples of these. A ratio of sums over elements of two sorts (Dice, IoU, a mean with weights of
// positives) hands all elements of a sort one number, of its own sign.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/describe.h"
#include "diagnose/hypothesis.h"

namespace ttrace {
namespace {

constexpr std::size_t kFewestOfSample = 4;  // values: of two, one tells the other where they sum to zero
constexpr std::size_t kFewestSamples = 4;   // of fewer, ranks' parts say as much
constexpr std::size_t kFewestOfSign = 16;   // values of a rank and a sign

struct Factor {
  double dot = 0, square = 0, candidate_square = 0;
  std::size_t count = 0;

  void add(double reference, double candidate) {
    dot += reference * candidate;
    square += reference * reference;
    candidate_square += candidate * candidate;
    ++count;
  }
  bool is_zero() const { return square == 0 && candidate_square == 0; }
  double value() const { return dot / square; }
};

bool is_activation_gradient(Kind kind) { return kind == Kind::kGradInput || kind == Kind::kGradOutput; }

// Explains a gradient whose stretches of `length` values, row-major, have a factor each.
std::optional<Diagnosis> explain_by_stretches(std::size_t length, const std::string& of_what, const Suspect& suspect) {
  if (length < kFewestOfSample) return std::nullopt;
  const std::size_t count = suspect.reference_values.size() / length;
  Values prediction = suspect.reference_values;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  std::size_t met = 0;
  bool are_left_out = true;  // or as they are: of the others a region says where they lie
  for (std::size_t k = 0; k < count; ++k) {
    Factor factor;
    for (std::size_t i = k * length; i < (k + 1) * length; ++i) {
      factor.add(suspect.reference_values[i], suspect.candidate_values[i]);
    }
    if (factor.is_zero()) continue;
    if (factor.square == 0) return std::nullopt;
    for (std::size_t i = k * length; i < (k + 1) * length; ++i) prediction[i] *= factor.value();
    least = std::min(least, factor.value());
    most = std::max(most, factor.value());
    const double apart = std::min(std::abs(factor.value()), std::abs(factor.value() - 1));
    are_left_out = are_left_out && apart <= suspect.bound;
    ++met;
  }
  if (met < kFewestSamples || are_left_out || !(most - least > suspect.bound * std::abs(most))) return std::nullopt;
  return suspect.explained_by(
      Cause::kOtherLoss, prediction,
      fmt::format(
          "each {} has the reference's gradient times a number of its own, of {:.4g} to {:.4g}: the loss weighs "
          "them otherwise ({})",
          of_what, least, most,
          least < 0 ? "their weights or advantages: some have the other sign"
                    : "their weights, advantages or temperatures, or what it is divided by"));
}

using Part = std::pair<std::int32_t, std::int32_t>;  // rank, and its number of the micro-batch

// Explains a gradient of which the part of each rank, or of each micro-batch, has a factor of its own, as where each divides
// by a number of its own: one over the factors averages 1.
std::optional<Diagnosis> divides_by_own_numbers(const Suspect& suspect) {
  std::map<Part, Factor> factors;
  std::vector<Part> part_of(suspect.reference_values.size());
  bool are_of_microbatches = false;
  for (const LocalTensor& part : suspect.parts) {
    are_of_microbatches = are_of_microbatches || part.microbatch != suspect.parts[0].microbatch;
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      const auto at = static_cast<std::size_t>(place);
      part_of[at] = {part.rank, part.microbatch};
      factors[part_of[at]].add(suspect.reference_values[at], suspect.candidate_values[at]);
    }
  }
  std::vector<double> numbers;
  std::vector<std::string> words;
  for (const auto& [part, factor] : factors) {
    if (factor.count < kFewestOfSample || factor.square == 0) return std::nullopt;
    numbers.push_back(factor.value());
    words.push_back(fmt::format("{:.4g} on rank {}", factor.value(), part.first));
    if (are_of_microbatches) words.back() += fmt::format(" in its micro-batch {}", part.second);
  }
  const auto [least, most] = std::ranges::minmax(numbers);
  if (numbers.size() < 2 || !(most - least > suspect.bound * most) || !are_of_own_divisors(numbers))
    return std::nullopt;
  Values prediction = suspect.reference_values;
  for (std::size_t i = 0; i < prediction.size(); ++i) {
    if (const auto found = factors.find(part_of[i]); found != factors.end()) prediction[i] *= found->second.value();
  }
  return suspect.explained_by(Cause::kMeanOfMeans, prediction,
                              fmt::format("the part of each {} is the reference's times a number: {}{}",
                                          are_of_microbatches ? "micro-batch" : "rank", comma_list(words),
                                          are_of_microbatches ? kOwnDivisorsOfMicrobatches : kOwnDivisors));
}

std::optional<Diagnosis> weighs_samples_otherwise(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  const std::size_t count = suspect.reference_values.size();
  if (shape.size() < 2 || count == 0) return std::nullopt;
  if (auto found = explain_by_stretches(count / static_cast<std::size_t>(shape[0]), "sample", suspect)) return found;
  if (shape.size() < 3) return std::nullopt;
  return explain_by_stretches(static_cast<std::size_t>(shape.back()), "row", suspect);
}

using SignKey = std::pair<std::int32_t, bool>;  // rank, whether the reference's is positive

std::string describe_signs(const std::map<SignKey, Factor>& factors, bool is_by_rank) {
  std::vector<std::string> words;
  std::set<std::int32_t> said;
  for (const auto& [key, factor] : factors) {
    if (!said.insert(key.first).second) continue;
    words.push_back(fmt::format("{:.4g} and {:.4g}", factors.at({key.first, true}).value(),
                                factors.at({key.first, false}).value()));
    if (is_by_rank) words.back() += fmt::format(" on rank {}", key.first);
    if (!is_by_rank) break;
  }
  return comma_list(words);
}

std::optional<Diagnosis> weighs_signs_otherwise(const Suspect& suspect) {
  std::map<SignKey, Factor> factors;
  std::vector<SignKey> keys(suspect.reference_values.size());
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      const auto at = static_cast<std::size_t>(place);
      const double reference = suspect.reference_values[at];
      if (reference == 0) continue;
      keys[at] = {part.rank, reference > 0};
      factors[keys[at]].add(reference, suspect.candidate_values[at]);
    }
  }
  bool differ_by_sign = false, differ_by_rank = false;
  for (const auto& [key, factor] : factors) {
    const auto other = factors.find({key.first, !key.second});
    if (other == factors.end() || factor.count < kFewestOfSign || !(factor.value() > 0)) return std::nullopt;
    const double near = suspect.bound * factor.value();
    differ_by_sign = differ_by_sign || std::abs(factor.value() - other->second.value()) > near;
    const Factor& first = factors.at({factors.begin()->first.first, key.second});
    differ_by_rank = differ_by_rank || std::abs(factor.value() - first.value()) > near;
  }
  if (!differ_by_sign) return std::nullopt;
  Values prediction = suspect.reference_values;
  for (std::size_t i = 0; i < prediction.size(); ++i) {
    if (prediction[i] != 0) prediction[i] *= factors.at(keys[i]).value();
  }
  if (!differ_by_rank) {
    return suspect.explained_by(
        Cause::kOtherLoss, prediction,
        fmt::format(
            "what is positive in it is the reference's times one number, and what is negative times another ({}): "
            "the loss weighs labels of the two sorts otherwise (a weight of positives, of classes)",
            describe_signs(factors, false)));
  }
  return suspect.explained_by(
      Cause::kOwnSamples, prediction,
      fmt::format("on each rank what is positive in it is the reference's times one number, and what is negative times "
                  "another ({}), as in a loss that is a ratio of sums (Dice, IoU, F1) where each rank takes the sums "
                  "over its own samples, in place of all",
                  describe_signs(factors, true)));
}

}  // namespace

std::optional<Diagnosis> weighed_otherwise(const Suspect& suspect) {
  if (!is_activation_gradient(suspect.reference.id.kind) || suspect.parts.empty()) return std::nullopt;
  auto found = weighs_signs_otherwise(suspect);
  if (!found) found = divides_by_own_numbers(suspect);
  if (!found) found = weighs_samples_otherwise(suspect);
  if (found) found->group = kOfWeights;
  return found;
}

}  // namespace ttrace
