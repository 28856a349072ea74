#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/lookup.h"
#include "base/tensor_name.h"
#include "compare/compare.h"
#include "diagnose/hypothesis.h"
#include "merge/rounded.h"

namespace ttrace {
namespace {

// Smaller powers of two are sizes of axes and numbers of micro-batches as often as loss scales.
constexpr double kLeastPowerOfScales = 5;

struct NamedNumber {
  std::string name;
  double value = 1;
};

std::int32_t microbatches_of(const RankTrace& rank, std::int32_t iteration) {
  std::int32_t count = 0;
  for (const Entry& entry : rank.entries) {
    if (entry.id.iteration == iteration) count = std::max(count, entry.id.microbatch + 1);
  }
  return count;
}

// Returns the numbers that programs multiply or divide by once too often: sizes of axes, products of two of them, and
// the numbers of micro-batches, in all and of a rank.
std::vector<NamedNumber> likely_factors(const TensorId& id, const Evidence& evidence) {
  std::vector<NamedNumber> numbers;
  const Axes axes = all_axes(evidence.mesh);
  for (const Axis& axis : axes) numbers.push_back({"the size of " + axis.name, static_cast<double>(axis.size)});
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = i + 1; j < axes.size(); ++j) {
      if (axes[i].size == 1 || axes[j].size == 1) continue;
      numbers.push_back({fmt::format("the size of {} times that of {}", axes[i].name, axes[j].name),
                         static_cast<double>(axes[i].size * axes[j].size)});
    }
  }
  std::set<std::int32_t> microbatches;
  for (const auto& [other, tensor] : evidence.candidate.tensors) {
    if (other.iteration == id.iteration && other.microbatch != kNoMicrobatch) microbatches.insert(other.microbatch);
  }
  numbers.push_back({"the number of micro-batches", static_cast<double>(microbatches.size())});
  if (evidence.candidate_trace != nullptr && !evidence.candidate_trace->ranks.empty()) {
    const std::int32_t of_rank = microbatches_of(evidence.candidate_trace->ranks.front(), id.iteration);
    if (of_rank != std::ssize(microbatches)) {
      numbers.push_back({"the number of micro-batches of a rank", static_cast<double>(of_rank)});
    }
  }
  std::erase_if(numbers, [](const NamedNumber& number) { return number.value <= 1; });
  return numbers;
}

// Names the numbers that the factor, or else its inverse, equals to within `bound`; empty where it equals none.
std::string describe_meaning(double factor, double bound, const std::vector<NamedNumber>& numbers) {
  for (const bool inverse : {false, true}) {
    std::string words;
    for (const NamedNumber& number : numbers) {
      const double value = inverse ? 1 / number.value : number.value;
      if (std::abs(factor - value) > bound * value) continue;
      words += fmt::format("{}{}{}", words.empty() ? ", " : " or ", inverse ? "one over " : "", number.name);
    }
    if (!words.empty()) return words;
  }
  const double power = factor > 0 ? std::round(std::log2(factor)) : 0;
  if (std::abs(power) < kLeastPowerOfScales || std::abs(factor - std::exp2(power)) > bound * factor) return {};
  return fmt::format(", 2^{:.0f}: a power of two, as loss scales are", power);
}

// A rank for each element: the one that holds it, or that held the input it was computed from; -1 where that is not one
// rank.
using ElementRanks = std::vector<std::int32_t>;

ElementRanks ranks_holding_elements(const Suspect& suspect) {
  ElementRanks ranks(suspect.candidate_values.size(), -1);
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place >= 0) ranks[static_cast<std::size_t>(place)] = part.rank;
    }
  }
  return ranks;
}

// Returns, for the output of a module that works on rows, the rank that held the row of its input. Empty where the
// input has other rows, or some row lies on several ranks.
ElementRanks ranks_of_input_rows(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  if (suspect.finding.id.kind != Kind::kOutput || shape.empty()) return {};
  const LogicalTensor* input =
      find_tensor(suspect.evidence.candidate, suspect.finding.id, Kind::kInput, suspect.finding.id.name);
  if (input == nullptr || !is_small(*input) || input->shape.size() != shape.size()) return {};
  if (!std::equal(shape.begin(), shape.end() - 1, input->shape.begin())) return {};
  ElementRanks row_ranks(suspect.candidate_values.size() / static_cast<std::size_t>(shape.back()), -1);
  for (const LocalTensor& part : local_tensors_of(*input)) {
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      std::int32_t& rank = row_ranks[static_cast<std::size_t>(place / input->shape.back())];
      if (rank >= 0 && rank != part.rank) return {};
      rank = part.rank;
    }
  }
  ElementRanks ranks(suspect.candidate_values.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = row_ranks[i / static_cast<std::size_t>(shape.back())];
  return ranks;
}

// Names a part of a tensor: the rank that holds it, and the rank that held the input it was computed from.
using HolderAndSource = std::pair<std::int32_t, std::int32_t>;

// Fits candidate - bias = factor * (reference - bias) to each part by least squares. The result is empty where a part
// is too small to tell, or is no multiple of the reference's.
std::map<HolderAndSource, double> fit_factors(const Suspect& suspect, const ElementRanks& holders,
                                              const ElementRanks& sources, const Values& biases) {
  struct Sums {
    double dot = 0, reference_square = 0, candidate_square = 0;
    std::size_t count = 0;
  };
  std::map<HolderAndSource, Sums> parts;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    Sums& sums = parts[{holders[i], sources[i]}];
    const double reference = suspect.reference_values[i] - biases[i];
    const double candidate = suspect.candidate_values[i] - biases[i];
    sums.dot += candidate * reference;
    sums.candidate_square += candidate * candidate;
    sums.reference_square += reference * reference;
    ++sums.count;
  }
  std::map<HolderAndSource, double> factors;
  for (const auto& [part, sums] : parts) {
    if (sums.count < kFewestValues || sums.reference_square == 0) return {};
    const double factor = sums.dot / sums.reference_square;
    const double residual_square = std::max(0.0, sums.candidate_square - factor * sums.dot);
    if (residual_square > suspect.bound * suspect.bound * sums.candidate_square) return {};
    factors.emplace(part, factor);
  }
  return factors;
}

std::string describe_factors(const std::map<HolderAndSource, double>& factors, double bound) {
  std::string words;
  bool inverse = false;
  for (const auto& [part, factor] : factors) {
    if (std::abs(factor - 1) <= bound) continue;
    const auto& [holder, source] = part;
    words += fmt::format("{}{:.4g} on rank {}", words.empty() ? "" : ", ", factor, holder);
    if (source >= 0) words += fmt::format(" of what it made of rank {}'s part of the input", source);
    const auto back = factors.find({source, holder});
    inverse = inverse || (back != factors.end() && back->first != part && std::abs(factor * back->second - 1) <= bound);
  }
  if (inverse)
    words += ": each the inverse of the other, as if each rank read the other's part with a scale of its own";
  return words;
}

std::optional<Diagnosis> explain_by_factors(const Suspect& suspect, const ElementRanks& holders,
                                            const ElementRanks& sources, const Values& biases) {
  const std::map<HolderAndSource, double> factors = fit_factors(suspect, holders, sources, biases);
  if (factors.size() < 2) return std::nullopt;
  const std::string words = describe_factors(factors, suspect.bound);
  if (words.empty()) return std::nullopt;
  Values explained = biases;
  for (std::size_t i = 0; i < explained.size(); ++i) {
    explained[i] += factors.at({holders[i], sources[i]}) * (suspect.reference_values[i] - biases[i]);
  }
  const std::string what = "the parts of some ranks are the reference's times a number: " + words;
  std::vector<double> of_parts;
  for (const auto& [part, factor] : factors) of_parts.push_back(part.second < 0 ? factor : 0);
  if (are_of_own_divisors(of_parts)) {
    return suspect.explained_by(Cause::kMeanOfMeans, explained, what + std::string(kOwnDivisors));
  }
  return suspect.explained_by(Cause::kRankFactor, explained, what);
}

// Counts the bits of a mantissa that a value needs, without the leading one.
int mantissa_bits(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  return mantissa == 0 ? 0 : 52 - __builtin_ctzll(mantissa);
}

int most_mantissa_bits(const Values& values) {
  int most = 0;
  for (const double value : values) most = std::max(most, mantissa_bits(value));
  return most;
}

// candidate = factor * reference, by least squares.
struct FactorFit {
  double factor, residual;
  double error;  // the residual of the factor 1
  std::int64_t elements;
};

std::optional<Diagnosis> explain_by_factor(const FactorFit& fit, const TensorId& id, double bound,
                                           const Evidence& evidence) {
  const bool explains = fit.residual <= bound && fit.residual <= fit.error * kLargestShareLeft;
  if (!explains || !(std::abs(fit.factor - 1) > bound) || fit.factor == 0) return std::nullopt;
  const std::string meaning = describe_meaning(fit.factor, bound, likely_factors(id, evidence));
  // A few numbers are nearly a multiple of others by chance, and a single one always is.
  if (fit.elements < static_cast<std::int64_t>(kFewestValues) && meaning.empty()) return std::nullopt;
  return Diagnosis{Cause::kUniformFactor, fit.residual,
                   fmt::format("every element is {:.4g} times the reference's{}", fit.factor, meaning),
                   meaning.empty() ? fmt::format("{:.2g}", fit.factor) : meaning};
}

}  // namespace

bool are_of_own_divisors(std::span<const double> factors) {
  constexpr double kNearMean = 1e-4;  // of how far they are from 1: what rounding leaves
  double sum = 0, farthest = 0;
  for (const double factor : factors) {
    if (!(factor > 0)) return false;
    sum += 1 / factor;
    farthest = std::max(farthest, std::abs(factor - 1));
  }
  return std::abs(sum / static_cast<double>(factors.size()) - 1) <= kNearMean * farthest;
}

Values added_biases(const Suspect& suspect) {
  Values biases(suspect.candidate_values.size());
  const TensorId& id = suspect.finding.id;
  const TensorName name(id.name);
  const LogicalTensor* bias = parameter_at(suspect.evidence.candidate, id, parameter_of(name.path, "bias"));
  if (!name.member.empty() || bias == nullptr || !is_small(*bias) ||
      bias->shape != Shape{suspect.reference.shape.back()})
    return biases;
  const Values values = values_of(*bias);
  for (std::size_t i = 0; i < biases.size(); ++i) biases[i] = values[i % values.size()];
  return biases;
}

std::optional<Diagnosis> uniform_factor(const Finding& finding, double bound, const Evidence& evidence) {
  const Difference& difference = *finding.difference;
  const FactorFit fit{difference.uniform_factor(), difference.uniform_factor_residual(), difference.rel_err(),
                      difference.elements};
  return explain_by_factor(fit, finding.id, bound, evidence);
}

// Differences of sums over many elements say to three or four digits what is left over, and an exact factor leaves
// nothing. So the tensor is compared once more, divided by the factor: by a likely one that is near enough, or as
// fitted.
std::optional<Diagnosis> uniform_factor(const Finding& finding, const LogicalTensor& reference,
                                        const LogicalTensor& candidate, double bound, const Evidence& evidence) {
  constexpr double kPrecisionOfSums = 1e-3;
  const double fitted = finding.difference->uniform_factor();
  if (!(finding.difference->uniform_factor_residual() <= kPrecisionOfSums) || !(std::abs(fitted) > 0))
    return std::nullopt;
  double likely = fitted;
  const auto prefer = [&](double factor) {
    if (std::abs(factor - fitted) <= kPrecisionOfSums * std::abs(fitted)) likely = factor;
  };
  for (const NamedNumber& number : likely_factors(finding.id, evidence)) {
    prefer(number.value);
    prefer(1 / number.value);
  }
  prefer(std::copysign(std::exp2(std::round(std::log2(std::abs(fitted)))), fitted));
  for (const double factor : {likely, fitted}) {
    LogicalTensor divided = candidate;
    divided.scale *= factor;
    const TensorPair pair{&reference, &divided};
    const Difference left = compare({&pair, 1}, {.threads = 0, .progress = {}, .checksums = false}).front();
    const FactorFit fit{factor, left.rel_err(), finding.difference->rel_err(), left.elements};
    if (auto found = explain_by_factor(fit, finding.id, bound, evidence)) return found;
  }
  return std::nullopt;
}

std::optional<Diagnosis> uniform_factor(const Suspect& suspect) {
  if (suspect.finding.reason == Reason::kReplicasDisagree) return std::nullopt;
  const Values& reference = suspect.reference_values;
  const double square = dot_of(reference, reference);
  if (square == 0) return std::nullopt;
  const double factor = dot_of(suspect.candidate_values, reference) / square;
  Values scaled = reference;
  for (double& value : scaled) value *= factor;
  const FactorFit fit{factor, relative_distance(suspect.candidate_values, scaled), suspect.error,
                      static_cast<std::int64_t>(reference.size())};
  return explain_by_factor(fit, suspect.finding.id, suspect.bound, suspect.evidence);
}

// A factor of all elements is in each part of the tensor: in 16 stretches of it, in 16 bands of its columns, and in
// what each rank holds. Each has half of it or more, and none as much again, or nothing is said: noise moves the factor
// of a part by more than that of the whole, and where half of the elements have a factor, the whole has half of it.
std::optional<Diagnosis> factor_in_noise(const Suspect& suspect) {
  constexpr std::size_t kParts = 16;
  const Values& reference = suspect.reference_values;
  const std::size_t size = reference.size();
  const double square = dot_of(reference, reference);
  if (size < kParts * kFewestValues || square == 0) return std::nullopt;
  const double factor = dot_of(suspect.candidate_values, reference) / square;
  const auto width = static_cast<std::size_t>(suspect.reference.shape.back());
  const ElementRanks holders = ranks_holding_elements(suspect);
  struct Sums {
    double dot = 0, square = 0;
  };
  std::map<std::pair<int, std::int64_t>, Sums> parts;  // by how the tensor is cut, and part
  for (std::size_t i = 0; i < size; ++i) {
    const std::array<std::int64_t, 3> at = {static_cast<std::int64_t>(i * kParts / size),
                                            static_cast<std::int64_t>(i % width * kParts / width), holders[i]};
    for (int cut = 0; cut < 3; ++cut) {
      Sums& sums = parts[{cut, at[static_cast<std::size_t>(cut)]}];
      sums.dot += suspect.candidate_values[i] * reference[i];
      sums.square += reference[i] * reference[i];
    }
  }
  for (const auto& [part, sums] : parts) {
    if (sums.square == 0 || std::abs(sums.dot / sums.square - factor) > std::abs(factor - 1) / 2) return std::nullopt;
  }
  Values scaled = reference;
  for (double& value : scaled) value *= factor;
  const auto judged = std::find_if(suspect.finding.statistics.begin(), suspect.finding.statistics.end(),
                                   [](const JudgedStatistic& one) { return one.statistic == Statistic::kScale; });
  const double allowed = judged == suspect.finding.statistics.end() ? 0 : judged->allowed;
  const std::string meaning = describe_meaning(factor, allowed, likely_factors(suspect.finding.id, suspect.evidence));
  return Diagnosis{Cause::kUniformFactor, relative_distance(suspect.candidate_values, scaled),
                   fmt::format("every element is {:.5g} times the reference's, but for noise{}", factor, meaning),
                   meaning.empty() ? fmt::format("{:.3g}", factor) : meaning};
}

std::optional<Diagnosis> rank_factor(const Suspect& suspect) {
  const ElementRanks holders = ranks_holding_elements(suspect), no_sources(holders.size(), -1),
                     sources = ranks_of_input_rows(suspect);
  if (auto found = explain_by_factors(suspect, holders, no_sources, Values(holders.size()))) return found;
  if (sources.empty()) return std::nullopt;
  return explain_by_factors(suspect, holders, sources, added_biases(suspect));
}

namespace {

struct Format {
  std::string_view name;
  int bits;  // of the mantissa, without the leading one
};
constexpr auto kFormats =
    std::to_array<Format>({{"float8 e5m2", 2}, {"float8 e4m3", 3}, {"bfloat16", 7}, {"float16", 10}});

double rounded_to(double value, int bits) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits + 1)), exponent - bits - 1);
}

// Names the format with so few bits. Values that lie near powers of two are the same in several: the widest that makes
// them of the reference's is then as likely as the others.
std::string describe_format(const Suspect& suspect, const Format& narrowest) {
  const Format* widest = &narrowest;
  for (const Format& format : kFormats) {
    if (format.bits <= widest->bits) continue;
    const bool is_made_by_it =
        std::equal(suspect.reference_values.begin(), suspect.reference_values.end(), suspect.candidate_values.begin(),
                   [&](double reference, double candidate) { return rounded_to(reference, format.bits) == candidate; });
    if (is_made_by_it) widest = &format;
  }
  return widest == &narrowest ? std::string(narrowest.name) : fmt::format("{}, or narrower", widest->name);
}

}  // namespace

std::optional<Diagnosis> rounded_to_own_dtype(const LogicalTensor& reference, const LogicalTensor& candidate) {
  if (!is_narrower(reference, candidate)) return std::nullopt;
  for (const auto& [rounding, how] :
       {std::pair(RoundingMode::kNearest, "rounded to {}, every element"),
        std::pair(RoundingMode::kTowardZero, "cut off to {}, every element: rounded toward zero, not to nearest")}) {
    if (!is_rounded(reference, candidate, rounding)) continue;
    return Diagnosis{Cause::kCoarserPrecision, 0, fmt::format(fmt::runtime(how), name_of(candidate.dtype))};
  }
  return std::nullopt;
}

// One number of a mantissa of 52 bits has seven or fewer by chance once in 2^45 times, and one that float32 holds once in
// 2^16. Round numbers such as 0.5 have fewer still, and no rounding made them.
std::optional<Diagnosis> rounded_numbers(const Suspect& suspect) {
  constexpr int kFewestLeftOut = 12, kFewestLeft = 3;  // bits
  if (suspect.candidate_values.size() >= kFewestValues) return std::nullopt;
  int most = 0;
  for (const auto& [rank, values] : values_by_rank(suspect.candidate))
    most = std::max(most, most_mantissa_bits(values));
  const int reference_bits = most_mantissa_bits(suspect.reference_values);
  for (const Format& format : kFormats) {
    if (most > format.bits || format.bits < 7) continue;
    const bool is_rounding = most > kFewestLeft && reference_bits >= format.bits + kFewestLeftOut &&
                             suspect.error <= std::ldexp(1, -format.bits - 1) + suspect.bound;
    if (!is_rounding) return std::nullopt;
    return Diagnosis{Cause::kCoarserPrecision, suspect.error,
                     fmt::format("it has {} mantissa bits: rounded to {}; the reference's has {}", most, format.name,
                                 reference_bits)};
  }
  return std::nullopt;
}

std::optional<Diagnosis> coarser_precision(const Suspect& suspect) {
  const auto is_zero = [](double value) { return value == 0; };
  if (std::all_of(suspect.candidate_values.begin(), suspect.candidate_values.end(), is_zero)) return std::nullopt;
  const int candidate_bits = most_mantissa_bits(suspect.candidate_values);
  const int reference_bits = most_mantissa_bits(suspect.reference_values);
  for (const Format& format : kFormats) {
    if (candidate_bits > format.bits) continue;
    // Rounding moves each element by half a unit at most.
    if (reference_bits <= format.bits || suspect.error > std::ldexp(1, -candidate_bits)) return std::nullopt;
    return Diagnosis{
        Cause::kCoarserPrecision, suspect.error,
        fmt::format("every element has {} mantissa bit{} or fewer ({}); the reference's have up to {}", candidate_bits,
                    candidate_bits == 1 ? "" : "s", describe_format(suspect, format), reference_bits)};
  }
  return std::nullopt;
}

}  // namespace ttrace
