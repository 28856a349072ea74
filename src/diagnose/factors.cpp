#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "align/lookup.h"
#include "diagnose/hypothesis.h"
#include "ttrace/tensor_name.h"

namespace ttrace {
namespace {

struct Count {
  std::string what;
  double value = 1;
};

// The numbers that a factor is often by mistake.
std::vector<Count> counts_of(const TensorId& id, const Evidence& evidence) {
  std::vector<Count> counts;
  const Axes axes = all_axes(evidence.mesh);
  for (const Axis& axis : axes) counts.push_back({"the size of " + axis.name, static_cast<double>(axis.size)});
  for (std::size_t i = 0; i < axes.size(); ++i) {
    for (std::size_t j = i + 1; j < axes.size(); ++j) {
      if (axes[i].size == 1 || axes[j].size == 1) continue;
      counts.push_back({fmt::format("the size of {} times that of {}", axes[i].name, axes[j].name),
                        static_cast<double>(axes[i].size * axes[j].size)});
    }
  }
  std::set<std::int32_t> microbatches;
  for (const auto& [other, tensor] : evidence.candidate.tensors) {
    if (other.iteration == id.iteration && other.microbatch != kNoMicrobatch) microbatches.insert(other.microbatch);
  }
  counts.push_back({"the number of micro-batches", static_cast<double>(microbatches.size())});
  std::erase_if(counts, [](const Count& count) { return count.value <= 1; });
  return counts;
}

// What a number stands for, or its inverse; empty for nothing.
std::string meaning_of(double factor, double bound, const std::vector<Count>& counts) {
  for (const bool inverse : {false, true}) {
    std::string words;
    for (const Count& count : counts) {
      const double value = inverse ? 1 / count.value : count.value;
      if (std::abs(factor - value) > bound * value) continue;
      words += fmt::format("{}{}{}", words.empty() ? ", " : " or ", inverse ? "one over " : "", count.what);
    }
    if (!words.empty()) return words;
  }
  return {};
}

// Of each element a number: which rank holds it, or held what it was computed from; -1 where that is not one rank.
using Labels = std::vector<std::int32_t>;

Labels holders_of(const Suspect& suspect) {
  Labels labels(suspect.found.size(), -1);
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place >= 0) labels[static_cast<std::size_t>(place)] = part.rank;
    }
  }
  return labels;
}

// Of a module that works on rows: by the rank that held the row of its input. Empty where rows have no such rank.
Labels sources_of(const Suspect& suspect) {
  const Shape& shape = suspect.reference.shape;
  if (suspect.finding.id.kind != Kind::kOutput || shape.empty()) return {};
  const LogicalTensor* input =
      find_tensor(suspect.evidence.candidate, suspect.finding.id, Kind::kInput, suspect.finding.id.name);
  if (input == nullptr || !is_small(*input) || input->shape.size() != shape.size()) return {};
  if (!std::equal(shape.begin(), shape.end() - 1, input->shape.begin())) return {};
  Labels of_rows(suspect.found.size() / static_cast<std::size_t>(shape.back()), -1);
  for (const LocalTensor& part : local_tensors_of(*input)) {
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      std::int32_t& label = of_rows[static_cast<std::size_t>(place / input->shape.back())];
      if (label >= 0 && label != part.rank) return {};
      label = part.rank;
    }
  }
  Labels labels(suspect.found.size());
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = of_rows[i / static_cast<std::size_t>(shape.back())];
  return labels;
}

// The bias that the module has added to each element; zeros where it has none.
Values biases_of(const Suspect& suspect) {
  Values biases(suspect.found.size());
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

using Part = std::pair<std::int32_t, std::int32_t>;  // held by, computed from what this rank held

// candidate - bias = factor * (reference - bias), by least squares, for each part; none where one is too small to tell,
// or is no multiple.
std::map<Part, double> fitted_factors(const Suspect& suspect, const Labels& holders, const Labels& sources,
                                      const Values& biases) {
  struct Sums {
    double dot = 0, square = 0, found = 0;
    std::size_t count = 0;
  };
  std::map<Part, Sums> parts;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    Sums& sums = parts[{holders[i], sources[i]}];
    const double expected = suspect.expected[i] - biases[i];
    const double found = suspect.found[i] - biases[i];
    sums.dot += found * expected;
    sums.found += found * found;
    sums.square += expected * expected;
    ++sums.count;
  }
  std::map<Part, double> factors;
  for (const auto& [part, sums] : parts) {
    if (sums.count < kFewestValues || sums.square == 0) return {};
    const double factor = sums.dot / sums.square;
    const double left = std::max(0.0, sums.found - factor * sums.dot);  // squared
    if (left > suspect.bound * suspect.bound * sums.found) return {};
    factors.emplace(part, factor);
  }
  return factors;
}

std::string words_of(const std::map<Part, double>& factors, double bound) {
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

std::optional<Diagnosis> factors_of_parts(const Suspect& suspect, const Labels& holders, const Labels& sources,
                                          const Values& biases) {
  const std::map<Part, double> factors = fitted_factors(suspect, holders, sources, biases);
  if (factors.size() < 2) return std::nullopt;
  const std::string words = words_of(factors, suspect.bound);
  if (words.empty()) return std::nullopt;
  Values explained = biases;
  for (std::size_t i = 0; i < explained.size(); ++i) {
    explained[i] += factors.at({holders[i], sources[i]}) * (suspect.expected[i] - biases[i]);
  }
  return suspect.explained_by(Cause::kRankFactor, explained,
                              "the parts of some ranks are the reference's times a number: " + words);
}

// The bits of a mantissa that a value needs, the leading one not counted.
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

}  // namespace

std::optional<Diagnosis> uniform_factor(const Finding& finding, double bound, const Evidence& evidence) {
  const Difference& difference = *finding.difference;
  const double factor = difference.uniform_factor();
  const double residual = difference.uniform_factor_residual();
  const bool explains = residual <= bound && residual <= difference.rel_err() * kMostLeft;
  if (!explains || !(std::abs(factor - 1) > bound) || factor == 0) return std::nullopt;
  const std::string meaning = meaning_of(factor, bound, counts_of(finding.id, evidence));
  // One number is always a multiple of another.
  if (difference.elements < static_cast<std::int64_t>(kFewestValues) && meaning.empty()) return std::nullopt;
  return Diagnosis{Cause::kUniformFactor, residual,
                   fmt::format("every element is {:.4g} times the reference's{}", factor, meaning)};
}

std::optional<Diagnosis> rank_factor(const Suspect& suspect) {
  const Labels holders = holders_of(suspect), nowhere(holders.size(), -1), sources = sources_of(suspect);
  if (auto found = factors_of_parts(suspect, holders, nowhere, Values(holders.size()))) return found;
  if (sources.empty()) return std::nullopt;
  return factors_of_parts(suspect, holders, sources, biases_of(suspect));
}

std::optional<Diagnosis> coarser_precision(const Suspect& suspect) {
  struct Format {
    std::string_view name;
    int bits;  // of the mantissa, the leading one not counted
  };
  const int found = most_mantissa_bits(suspect.found), expected = most_mantissa_bits(suspect.expected);
  for (const Format& format : {Format{"float8 e5m2", 2}, {"float8 e4m3", 3}, {"bfloat16", 7}, {"float16", 10}}) {
    if (found > format.bits) continue;
    // Rounding moves each element by half a unit at most.
    if (expected <= format.bits || suspect.error > std::ldexp(1, -found)) return std::nullopt;
    return Diagnosis{Cause::kCoarserPrecision, suspect.error,
                     fmt::format("every element has {} mantissa bits or fewer ({}); the reference's have up to {}",
                                 found, format.name, expected)};
  }
  return std::nullopt;
}

}  // namespace ttrace
