// A main gradient is a sum over micro-batches, and over the ranks that computed them or terms of them. Least squares
// tell how often each addend is in the candidate's sum. A hypothesis must find each of them 0, 1 or 2 times.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "align/holders.h"
#include "diagnose/hypothesis.h"
#include "merge/terms.h"

namespace ttrace {
namespace {

constexpr double kMostTimes = 2;
constexpr double kMostStored = double{1 << 25};  // values of all addends together: 256 MiB

using Addends = std::map<std::int32_t, Values>;  // by micro-batch or by rank
using Times = std::map<std::int32_t, double>;    // how often each addend is in the sum
using Elements = std::vector<std::size_t>;       // row-major numbers of some of a tensor's elements

void add_values(Values& to, const Values& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// Returns the parameter's gradients, one of each micro-batch; none where they are too large or of other shapes.
std::vector<const LogicalTensor*> find_addends(const Suspect& suspect, const Alignment& side) {
  const auto addends = terms_of_main_gradients(side);
  const auto found = addends.find({suspect.finding.id.iteration, suspect.finding.id.name});
  if (found == addends.end()) return {};
  const bool fit = std::all_of(found->second.begin(), found->second.end(), [&](const LogicalTensor* tensor) {
    return tensor->shape == suspect.reference.shape && is_small(*tensor);
  });
  const double stored = static_cast<double>(found->second.size() * suspect.reference_values.size());
  return fit && stored <= kMostStored ? found->second : std::vector<const LogicalTensor*>();
}

Addends addends_by_microbatch(const Suspect& suspect) {
  Addends addends;
  for (const LogicalTensor* tensor : find_addends(suspect, suspect.evidence.reference)) {
    addends[tensor->id.microbatch] = values_of(*tensor);
  }
  return addends;
}

Addends addends_by_rank(const Suspect& suspect) {
  Addends addends;
  for (const LogicalTensor* tensor : find_addends(suspect, suspect.evidence.candidate)) {
    const std::size_t ranks = ranks_holding(*tensor).size() + addends.size();
    if (static_cast<double>(ranks * suspect.reference_values.size()) > kMostStored) return {};
    for (auto& [rank, values] : values_by_rank(*tensor)) {
      const auto [at, is_new] = addends.try_emplace(rank, std::move(values));
      if (!is_new) add_values(at->second, values);
    }
  }
  return addends;
}

// Fits the number that the sum of the addends must be multiplied by to give the reference's main gradient; 0 where none
// does.
double fit_scale(const Addends& addends, const Suspect& suspect) {
  Values sum(suspect.reference_values.size());
  for (const auto& [key, values] : addends) add_values(sum, values);
  const double square = dot_of(sum, sum);
  if (square == 0) return 0;
  const double scale = dot_of(suspect.reference_values, sum) / square;
  for (double& value : sum) value *= scale;
  return relative_distance(sum, suspect.reference_values) <= suspect.bound ? scale : 0;
}

// Solves the symmetric system in place by Gaussian elimination. `matrix` is [n, n + 1]: its last column repeats the
// diagonal. Returns false where the addends are too alike to be told apart.
bool solve(std::vector<Values>& matrix, Values& right) {
  constexpr double kAlike = 1e-6;  // of what was on the diagonal; the gradients are bf16, and their squares fp64
  const std::size_t n = right.size();
  for (std::size_t k = 0; k < n; ++k) {
    if (!(matrix[k][k] > kAlike * matrix[k][n])) return false;
    for (std::size_t row = 0; row < n; ++row) {
      if (row == k) continue;
      const double factor = matrix[row][k] / matrix[k][k];
      for (std::size_t column = 0; column < n; ++column) matrix[row][column] -= factor * matrix[k][column];
      right[row] -= factor * right[k];
    }
  }
  for (std::size_t k = 0; k < n; ++k) right[k] /= matrix[k][k];
  return true;
}

// Fits how often each addend is in these elements of the candidate's sum, to the nearest integer. Addends that are zero
// there are left out. The result is empty where the fit has no solution, or finds an addend more than twice.
Times fit_times(const Elements& elements, const Addends& addends, double scale, const Suspect& suspect) {
  std::vector<std::int32_t> keys;
  std::vector<Values> matrix;
  Values right;
  const auto dot = [&](const Values& a, const Values& b) {
    double sum = 0;
    for (const std::size_t i : elements) sum += a[i] * b[i];
    return sum;
  };
  for (const auto& [key, values] : addends) {
    if (dot(values, values) > 0) keys.push_back(key);
  }
  const double products = static_cast<double>(keys.size() * keys.size()) * static_cast<double>(elements.size());
  if (keys.empty() || products > kMostMultiplications || elements.size() < kFewestValues) return {};
  for (const std::int32_t row : keys) {
    Values& line = matrix.emplace_back();
    for (const std::int32_t column : keys) line.push_back(dot(addends.at(row), addends.at(column)));
    line.push_back(line[matrix.size() - 1]);
    right.push_back(dot(addends.at(row), suspect.candidate_values));
  }
  if (!solve(matrix, right)) return {};
  Times times;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double rounded = std::round(right[i] / scale);
    if (!(rounded >= 0 && rounded <= kMostTimes)) return {};
    times[keys[i]] = rounded;
  }
  return times;
}

// Sets `to` at `elements` to the sum with each addend as often as `times` says.
void write_sum(Values& to, const Elements& elements, const Addends& addends, const Times& times, double scale) {
  for (const std::size_t i : elements) {
    to[i] = 0;
    for (const auto& [key, count] : times) to[i] += scale * count * addends.at(key)[i];
  }
}

std::map<std::int32_t, Elements> elements_by_rank(const Suspect& suspect) {
  std::map<std::int32_t, Elements> elements;
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place >= 0) elements[part.rank].push_back(static_cast<std::size_t>(place));
    }
  }
  return elements;
}

// Returns the addends that are in the sum `count` times.
std::vector<std::int32_t> addends_with_count(const Times& times, double count) {
  std::vector<std::int32_t> keys;
  for (const auto& [key, value] : times) {
    if (value == count) keys.push_back(key);
  }
  return keys;
}

// Names the rank of an axis whose micro-batches these are, all of them; empty for none. Micro-batches are dealt out to
// ranks in turn.
std::string describe_owner(const std::vector<std::int32_t>& microbatches, std::size_t all, const Mesh& mesh) {
  for (const Axis& axis : mesh.axes) {
    const auto size = static_cast<std::size_t>(axis.size);
    if (size < 2 || microbatches.size() * size != all) continue;
    const bool same = std::all_of(microbatches.begin(), microbatches.end(), [&](std::int32_t microbatch) {
      return microbatch % axis.size == microbatches.front() % axis.size;
    });
    if (same) return fmt::format(" of rank {} of {}", microbatches.front() % axis.size, axis.name);
  }
  return {};
}

std::string describe_microbatches(const Times& times, const Mesh& mesh) {
  const auto missing = addends_with_count(times, 0), twice = addends_with_count(times, 2),
             once = addends_with_count(times, 1);
  if (missing.size() > 1 && missing.size() + 1 == times.size() && once.size() == 1) {
    return fmt::format("the sum has the gradient of micro-batch {} only", once.front());
  }
  std::string words;
  if (missing.size() == 1) words = fmt::format("the sum lacks the gradient of micro-batch {}", missing.front());
  if (missing.size() > 1) {
    words = fmt::format("the sum lacks the micro-batches {}{}", fmt::join(missing, ", "),
                        describe_owner(missing, times.size(), mesh));
  }
  if (!twice.empty()) {
    words += fmt::format("{}the sum has the gradient of micro-batch {} twice", words.empty() ? "" : "; ",
                         fmt::join(twice, ", "));
  }
  return words;
}

// Describes the addends that some parts lack or have twice. `parts` are by the rank that holds the part.
std::string describe_parts(const std::map<std::int32_t, Times>& parts) {
  std::string words;
  for (const auto& [holder, times] : parts) {
    for (const double count : {0.0, 2.0}) {
      const auto ranks = addends_with_count(times, count);
      if (ranks.empty()) continue;
      words += fmt::format("{}the part of rank {} {} of rank {}", words.empty() ? "" : "; ", holder,
                           count == 0 ? "lacks the gradient" : "has twice the gradient", fmt::join(ranks, ", "));
    }
  }
  return words;
}

std::optional<Diagnosis> explain_by_microbatches(const Suspect& suspect) {
  const Addends addends = addends_by_microbatch(suspect);
  const double scale = addends.size() < 2 ? 0 : fit_scale(addends, suspect);
  if (scale == 0) return std::nullopt;
  Elements all(suspect.candidate_values.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const Times times = fit_times(all, addends, scale, suspect);
  const std::string words = describe_microbatches(times, suspect.evidence.mesh);
  if (words.empty()) return std::nullopt;
  Values sum(suspect.candidate_values.size());
  write_sum(sum, all, addends, times, scale);
  return suspect.explained_by(Cause::kMissingContribution, sum, words);
}

// Fits each rank's part by itself: where ranks own parts of a gradient, the reduction of only some of them may be
// wrong.
std::optional<Diagnosis> explain_by_ranks(const Suspect& suspect) {
  const Addends addends = addends_by_rank(suspect);
  const double scale = addends.size() < 2 ? 0 : fit_scale(addends, suspect);
  if (scale == 0) return std::nullopt;
  std::map<std::int32_t, Times> parts;
  Values sum = suspect.reference_values;
  for (const auto& [rank, elements] : elements_by_rank(suspect)) {
    const Times times = fit_times(elements, addends, scale, suspect);
    if (times.empty()) continue;
    parts[rank] = times;
    write_sum(sum, elements, addends, times, scale);
  }
  const std::string words = describe_parts(parts);
  if (words.empty()) return std::nullopt;
  return suspect.explained_by(Cause::kMissingContribution, sum, words);
}

}  // namespace

// A sum over the ranks of an axis is made after each micro-batch, of what the ranks have accumulated so far. What came
// before is the same on all of them by then, and the sum multiplies it by their number: of n micro-batches on an axis of
// size s, the k-th (from 1) counts s^(n - k) times.
std::optional<Diagnosis> accumulated_again(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad) return std::nullopt;
  const Addends addends = addends_by_microbatch(suspect);
  const double scale = addends.size() < 2 ? 0 : fit_scale(addends, suspect);
  if (scale == 0) return std::nullopt;
  for (const Axis& axis : all_axes(suspect.evidence.mesh)) {
    if (axis.size < 2) continue;
    Values sum(suspect.candidate_values.size());
    for (const auto& [microbatch, values] : addends) {
      for (double& value : sum) value *= static_cast<double>(axis.size);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += scale * values[i];
    }
    const std::string words = fmt::format(
        "accumulated again: micro-batch k of {0} counts {1}^({0} - k) times, as if the sum over the {1} ranks of {2} "
        "was made after each micro-batch, with all that was accumulated before",
        addends.size(), axis.size, axis.name);
    if (auto found = suspect.explained_by(Cause::kAccumulatedAgain, sum, words)) return found;
  }
  return std::nullopt;
}

std::optional<Diagnosis> missing_contribution(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad) return std::nullopt;
  if (auto found = explain_by_microbatches(suspect)) return found;
  return explain_by_ranks(suspect);
}

}  // namespace ttrace
