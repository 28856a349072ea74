// A main gradient is a sum over micro-batches, and over the ranks that computed them or terms of them. Least squares
// tell how often each addend is in the candidate's sum. A hypothesis must find each of them 0, 1 or 2 times.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "align/holders.h"
#include "base/lookup.h"
#include "base/tensor_name.h"
#include "diagnose/hypothesis.h"
#include "diagnose/left_overs.h"
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

// Returns the parameter's gradients in an iteration, one of each micro-batch; none where they are too large or of other
// shapes.
std::vector<const LogicalTensor*> find_addends(const Suspect& suspect, const Alignment& side, std::int32_t iteration) {
  const auto addends = terms_of_main_gradients(side);
  const auto found = addends.find({iteration, suspect.finding.id.name});
  if (found == addends.end()) return {};
  const bool fit = std::all_of(found->second.begin(), found->second.end(), [&](const LogicalTensor* tensor) {
    return tensor->shape == suspect.reference.shape && is_small(*tensor);
  });
  const double stored = static_cast<double>(found->second.size() * suspect.reference_values.size());
  return fit && stored <= kMostStored ? found->second : std::vector<const LogicalTensor*>();
}

// The terms of a gradient that was put together of a side's micro-batches, by the ranks' own numbers of these.
Addends terms_by_microbatch(const LogicalTensor& sum) {
  std::map<std::int32_t, LogicalTensor> terms;
  for (const Piece& piece : sum.pieces()) terms.try_emplace(piece.entry->id.microbatch, sum);
  Addends addends;
  for (auto& [microbatch, term] : terms) {
    term.pieces = [all = sum.pieces, microbatch = microbatch] {
      std::vector<Piece> pieces = all();
      std::erase_if(pieces, [&](const Piece& piece) { return piece.entry->id.microbatch != microbatch; });
      return pieces;
    };
    addends[microbatch] = values_of(term);
  }
  return addends;
}

Addends addends_by_microbatch(const Suspect& suspect, std::int32_t iteration) {
  const Alignment& candidate = suspect.evidence.candidate;
  if (const auto cut = candidate.joined.find(iteration); cut != candidate.joined.end()) {
    const bool is_candidate_cut = cut->second.candidate > cut->second.reference;
    const std::vector<const LogicalTensor*> sums =
        find_addends(suspect, is_candidate_cut ? candidate : suspect.evidence.reference, iteration);
    return sums.size() == 1 ? terms_by_microbatch(*sums[0]) : Addends();
  }
  Addends addends;
  for (const LogicalTensor* tensor : find_addends(suspect, suspect.evidence.reference, iteration)) {
    addends[tensor->id.microbatch] = values_of(*tensor);
  }
  return addends;
}

Addends addends_by_rank(const Suspect& suspect) {
  Addends addends;
  for (const LogicalTensor* tensor : find_addends(suspect, suspect.evidence.candidate, suspect.finding.id.iteration)) {
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

// Fits `sum` by multiples of the addends on these elements, by least squares. Addends that are zero there are left out.
// The result is empty where the fit has no solution.
Times fit_multiples(const Elements& elements, const Addends& addends, const Values& sum) {
  std::vector<std::int32_t> keys;
  std::vector<Values> matrix;
  Values right;
  const auto dot = [&](const Values& a, const Values& b) {
    double total = 0;
    for (const std::size_t i : elements) total += a[i] * b[i];
    return total;
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
    right.push_back(dot(addends.at(row), sum));
  }
  if (!solve(matrix, right)) return {};
  Times multiples;
  for (std::size_t i = 0; i < keys.size(); ++i) multiples[keys[i]] = right[i];
  return multiples;
}

// Fits how often each addend is in these elements of the candidate's sum, to the nearest integer. The result is empty
// where the fit finds an addend more than twice.
Times fit_times(const Elements& elements, const Addends& addends, double scale, const Suspect& suspect) {
  Times times = fit_multiples(elements, addends, suspect.candidate_values);
  for (auto& [key, count] : times) {
    count = std::round(count / scale);
    if (!(count >= 0 && count <= kMostTimes)) return {};
  }
  return times;
}

// Holds what an error has of an earlier iteration: some of its micro-batches' gradients, all times one factor.
struct LeftOver {
  std::vector<std::int32_t> microbatches;  // empty: nothing
  double factor = 0;
};

LeftOver fit_left_over(const Elements& elements, const Addends& addends, const Values& errors) {
  constexpr double kNear = 0.1;  // of the largest multiple: how far those that are there, or not there, may lie
  const Times multiples = fit_multiples(elements, addends, errors);
  double largest = 0;
  for (const auto& [microbatch, multiple] : multiples) largest = std::max(largest, multiple);
  LeftOver left;
  for (const auto& [microbatch, multiple] : multiples) {
    if (multiple > (1 - kNear) * largest) {
      left.microbatches.push_back(microbatch);
      left.factor += multiple;
    } else if (std::abs(multiple) > kNear * largest) {
      return {};
    }
  }
  left.factor /= std::max(1.0, static_cast<double>(left.microbatches.size()));
  return left;
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
    words += fmt::format("{} has the gradient of micro-batch {} twice", words.empty() ? "the sum" : ", and",
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

// A gradient's micro-batches, and the number that their sum must be multiplied by to give it.
struct Contributions {
  Addends addends;
  double scale = 0;  // 0: there is none
};

Contributions contributions_of_microbatches(const Suspect& suspect) {
  Contributions found{addends_by_microbatch(suspect, suspect.finding.id.iteration)};
  if (found.addends.size() > 1) found.scale = fit_scale(found.addends, suspect);
  return found;
}

// Few values fit any multiples of several addends: one of them may be lacking, or there twice, and must then explain the
// error as nearly as a single number must.
std::optional<Diagnosis> explain_few_by_a_microbatch(const Contributions& contributions, const Suspect& suspect) {
  std::optional<Diagnosis> found;
  for (const auto& [microbatch, gradient] : contributions.addends) {
    for (const double count : {0.0, 2.0}) {
      Values sum = suspect.reference_values;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (count - 1) * contributions.scale * gradient[i];
      const Times times = {{microbatch, count}};
      auto explained = suspect.explained_by(Cause::kMissingContribution, sum, describe_microbatches(times, {}));
      const double most = suspect.error * kLargestShareLeft / static_cast<double>(kFewestValues);
      if (!explained || explained->residual > most) continue;
      if (found) return std::nullopt;
      found = std::move(explained);
    }
  }
  return found;
}

std::optional<Diagnosis> explain_by_microbatches(const Contributions& contributions, const Suspect& suspect) {
  const auto& [addends, scale] = contributions;
  if (scale == 0) return std::nullopt;
  if (suspect.candidate_values.size() < kFewestValues) return explain_few_by_a_microbatch(contributions, suspect);
  Elements all(suspect.candidate_values.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const Times times = fit_times(all, addends, scale, suspect);
  const std::string words = describe_microbatches(times, suspect.evidence.mesh);
  if (words.empty()) return std::nullopt;
  Values sum(suspect.candidate_values.size());
  write_sum(sum, all, addends, times, scale);
  return suspect.explained_by(Cause::kMissingContribution, sum, words);
}

// Where ranks own parts of a gradient, each of them may have added up others of the micro-batches.
std::optional<Diagnosis> explain_by_microbatches_of_parts(const Contributions& contributions, const Suspect& suspect) {
  const auto& [addends, scale] = contributions;
  if (scale == 0) return std::nullopt;
  Values sum = suspect.reference_values;
  std::string words;
  for (const auto& [rank, elements] : elements_by_rank(suspect)) {
    const Times times = fit_times(elements, addends, scale, suspect);
    const std::string of_part = describe_microbatches(times, suspect.evidence.mesh);
    if (of_part.empty()) continue;
    write_sum(sum, elements, addends, times, scale);
    words += fmt::format("{}in the part of rank {} {}", words.empty() ? "" : "; ", rank, of_part);
  }
  if (words.empty()) return std::nullopt;
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
// before is the same on all of them by then, and the sum multiplies it by their number: of n micro-batches on an axis
// of size s, the k-th (from 1) counts s^(n - k) times.
std::optional<Diagnosis> accumulated_again(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad) return std::nullopt;
  const auto [addends, scale] = contributions_of_microbatches(suspect);
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

namespace {

// What a part of the candidate's main gradient is made of: a multiple of what the iteration before has left, and one of
// the reference's, which is not 1 where gradients were clipped with what was left in them.
struct Mixture {
  double left = 0, own = 1;
};

// Keys of `Addends`.
constexpr std::int32_t kLeft = 0, kOwn = 1;

// Fits a part to what was left and the reference's, and that as it is unless `is_scaled`.
Mixture fit_mixture(const Elements& elements, const Values& before, bool is_scaled, const Suspect& suspect) {
  Values wanted = suspect.candidate_values;
  Addends addends = {{kLeft, before}};
  if (is_scaled) {
    addends[kOwn] = suspect.reference_values;
  } else {
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] -= suspect.reference_values[i];
  }
  const Times times = fit_multiples(elements, addends, wanted);
  if (times.size() != addends.size()) return {};
  return {times.at(kLeft), is_scaled ? times.at(kOwn) : 1};
}

// Returns what the nearest multiples of the reference's parts leave over of the candidate's.
double residual_of_factors(const std::map<std::int32_t, Elements>& parts, const Suspect& suspect) {
  Values prediction = suspect.reference_values;
  for (const auto& [rank, elements] : parts) {
    const Times times = fit_multiples(elements, {{kOwn, suspect.reference_values}}, suspect.candidate_values);
    if (times.empty()) continue;
    for (const std::size_t i : elements) prediction[i] *= times.at(kOwn);
  }
  return relative_distance(suspect.candidate_values, prediction);
}

// The main gradient of the candidate's iteration before is in it, as it was or clipped, beside the reference's. The two
// must explain what no factor of the reference's does.
std::optional<Diagnosis> explain_by_iteration_before(const LogicalTensor& left_over, bool is_scaled,
                                                     const Suspect& suspect) {
  const Values before = values_of(left_over);
  if (!std::isfinite(norm_of(before))) return std::nullopt;
  const std::string what = describe_gradient_of(left_over);
  const auto parts = elements_by_rank(suspect);
  Values prediction = suspect.reference_values;
  std::map<std::string, std::vector<std::int32_t>> ranks_by_words;
  for (const auto& [rank, elements] : parts) {
    const auto [left, own] = fit_mixture(elements, before, is_scaled, suspect);
    double square = 0, square_left = 0;
    for (const std::size_t i : elements) {
      prediction[i] = left * before[i] + own * suspect.reference_values[i];
      square += prediction[i] * prediction[i];
      square_left += left * before[i] * left * before[i];
    }
    if (square_left <= suspect.bound * suspect.bound * square) continue;
    if (left < 0 || own < 0) return std::nullopt;
    ranks_by_words[describe_left_over(left_over, left, own)].push_back(rank);
  }
  std::string words;
  for (const auto& [part, ranks] : ranks_by_words) {
    const bool is_everywhere = ranks.size() == parts.size();
    words += fmt::format("{}{}{}", words.empty() ? "" : "; ", part,
                         is_everywhere ? "" : fmt::format(", in the part of rank {}", fmt::join(ranks, ", ")));
  }
  if (words.empty()) return std::nullopt;
  auto found = suspect.explained_by(Cause::kLeftOver, prediction, fmt::format("{} {}", words, kIsThereZeroGrad));
  if (!found || found->residual > residual_of_factors(parts, suspect) * kLargestShareLeft) return std::nullopt;
  found->group = what;
  return found;
}

// Explains by a sum to which nothing is fitted, with what was made before the reference's. Few values must meet it as
// nearly as a single number must.
std::optional<Diagnosis> explain_by_sum(const Values& sum, const std::string& what, const Suspect& suspect) {
  auto found = suspect.explained_by(Cause::kLeftOver, sum, what);
  const bool has_few = sum.size() < kFewestValues;
  const double most = suspect.error * kLargestShareLeft / static_cast<double>(has_few ? kFewestValues : 1);
  return found && found->residual <= most ? found : std::nullopt;
}

// What the candidate multiplied the loss of the micro-batch by; 1 where it has no such gradient.
double loss_scale_in(const Suspect& suspect, std::int32_t microbatch) {
  TensorId gradient = suspect.finding.id.with_kind(Kind::kParamGrad);
  gradient.microbatch = microbatch;
  const LogicalTensor* tensor = find_tensor(suspect.evidence.candidate, gradient);
  return tensor == nullptr ? 1 : tensor->scale;
}

// Between two backwards of an iteration the reference zeroes what the first has made (sharpness-aware steps, gradients
// that are looked at before the step): its sum is that of the last micro-batches. The candidate's begins earlier.
std::optional<Diagnosis> explain_by_microbatches_before(const Suspect& suspect) {
  const Addends addends = addends_by_microbatch(suspect, suspect.finding.id.iteration);
  Addends last = addends;
  while (last.size() > 1) {
    last.erase(last.begin());
    const double scale = fit_scale(last, suspect);
    if (scale == 0) continue;
    const std::int32_t zeroed_before = last.begin()->first;
    const double reduced = scale / loss_scale_in(suspect, zeroed_before);  // by what ranks divide all sums by
    Values sum = suspect.reference_values;
    std::vector<std::int32_t> left;
    for (auto earlier = addends.find(zeroed_before); earlier != addends.begin();) {
      --earlier;
      const double times = reduced * loss_scale_in(suspect, earlier->first);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += times * earlier->second[i];
      left.insert(left.begin(), earlier->first);
      const std::string what = fmt::format(
          "the gradient of micro-batch {} is still in it, which the reference leaves out (is there a zero_grad before "
          "the backward of micro-batch {}?)",
          fmt::join(left, ", "), zeroed_before);
      if (auto found = explain_by_sum(sum, what, suspect)) return found;
    }
  }
  return std::nullopt;
}

// The terms that the iteration before has left, or those that one rank made of them, all times one number (a loss scale,
// a clipping factor), are in it. Where ranks own parts of the sum, each part is fitted by itself.
std::optional<Diagnosis> explain_by_terms_before(const Suspect& suspect) {
  const Addends addends = addends_by_microbatch(suspect, suspect.finding.id.iteration - 1);
  const auto is_finite = [](const auto& addend) { return std::isfinite(norm_of(addend.second)); };
  if (addends.empty() || !std::all_of(addends.begin(), addends.end(), is_finite)) return std::nullopt;
  Values errors = suspect.candidate_values, prediction = suspect.reference_values;
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] -= suspect.reference_values[i];
  std::string words;
  for (const auto& [rank, elements] : elements_by_rank(suspect)) {
    const LeftOver left = fit_left_over(elements, addends, errors);
    if (left.microbatches.empty()) continue;
    for (const std::int32_t microbatch : left.microbatches) {
      for (const std::size_t i : elements) prediction[i] += left.factor * addends.at(microbatch)[i];
    }
    words += fmt::format("{}in the part of rank {}, {:.4g} times the gradients of its micro-batches {}",
                         words.empty() ? "" : "; ", rank, left.factor, fmt::join(left.microbatches, ", "));
  }
  if (words.empty()) return std::nullopt;
  const std::string began =
      fmt::format("the sum began with what iteration {} had left", suspect.finding.id.iteration - 1);
  auto found = suspect.explained_by(Cause::kLeftOver, prediction, fmt::format("{}: {}", began, words));
  if (found) found->group = began;
  return found;
}

}  // namespace

// Gradients are added to what their memory holds. Where nobody zeroed it, that is what was made before.
std::optional<Diagnosis> not_zeroed(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad) return std::nullopt;
  if (auto found = explain_by_microbatches_before(suspect)) return found;
  const LogicalTensor* before = find_left_over(suspect.candidate, suspect.evidence.candidate);
  if (before == nullptr) return std::nullopt;
  Values sum = values_of(*before);
  add_values(sum, suspect.reference_values);
  const std::string what = describe_gradient_of(*before);
  auto found = explain_by_sum(sum, fmt::format("{} is still in it {}", what, kIsThereZeroGrad), suspect);
  if (found) found->group = what;
  return found;
}

std::optional<Diagnosis> left_over(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad) return std::nullopt;
  if (const LogicalTensor* before = find_left_over(suspect.candidate, suspect.evidence.candidate)) {
    for (const bool is_scaled : {false, true}) {
      if (auto found = explain_by_iteration_before(*before, is_scaled, suspect)) return found;
    }
  }
  return explain_by_terms_before(suspect);
}

namespace {

// What a rank has of the parameters whose names differ from one another's in numbers alone: of each, in order of the
// names, the gradient that it has made by itself.
using OwnGradients = std::map<std::int32_t, std::map<std::string, Values>>;

OwnGradients own_gradients_like(const Suspect& suspect) {
  OwnGradients own;
  const TensorId& id = suspect.candidate.id;
  double stored = 0;
  for (const auto& [other, tensor] : suspect.evidence.candidate.tensors) {
    const bool is_like = other.kind == Kind::kParamGrad && other.iteration == id.iteration &&
                         without_numbers(other.name.get()) == without_numbers(id.name.get());
    if (!is_like || tensor.shape != suspect.reference.shape || !is_small(tensor)) continue;
    for (auto& [rank, values] : values_by_rank(tensor)) {
      stored += static_cast<double>(values.size());
      if (stored > kMostStored) return {};
      const auto [at, is_new] = own[rank].try_emplace(other.name, std::move(values));
      if (!is_new) add_values(at->second, values);
    }
  }
  return own;
}

}  // namespace

// A rank's gradients are reduced with those of the ranks that hold the same parameters. Where the ranks of another axis are
// taken, which hold other experts, the copy of each rank is the sum of what these have in the same place.
std::optional<Diagnosis> reduced_along_other_axis(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad || suspect.parts.size() != 1) return std::nullopt;
  const std::int32_t holder = suspect.parts[0].rank;
  const Addends addends = addends_by_rank(suspect);
  const double scale = addends.empty() ? 0 : fit_scale(addends, suspect);
  if (scale == 0) return std::nullopt;
  const OwnGradients own = own_gradients_like(suspect);
  if (!own.contains(holder)) return std::nullopt;
  const auto& of_holder = own.at(holder);
  const auto place = std::distance(of_holder.begin(), of_holder.find(suspect.candidate.id.name));
  const Axes axes = factorings_of(suspect.evidence.mesh)[suspect.candidate.factoring];
  for (const Axis& axis : axes) {
    if (axis.size < 2) continue;
    Coordinates at = coordinates_of(axes, holder);
    at.erase(axis.name);
    Values sum(suspect.candidate_values.size());
    std::set<std::string> names;
    std::int64_t ranks = 0;
    for (const auto& [rank, gradients] : own) {
      Coordinates other = coordinates_of(axes, rank);
      other.erase(axis.name);
      if (other != at || static_cast<std::ptrdiff_t>(gradients.size()) <= place) continue;
      const auto& [name, values] = *std::next(gradients.begin(), place);
      names.insert(printable(name));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += scale * values[i];
      ++ranks;
    }
    if (ranks != axis.size || names.size() < 2) continue;
    const std::string what =
        fmt::format("it was summed or averaged over the {} ranks of {}, which hold other parameters of its kind: {}",
                    ranks, axis.name, fmt::join(names, ", "));
    if (auto found = suspect.explained_by(Cause::kOtherGroup, sum, what)) {
      found->group = axis.name;
      return found;
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> missing_contribution(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kMainGrad) return std::nullopt;
  const Contributions contributions = contributions_of_microbatches(suspect);
  if (auto found = explain_by_microbatches(contributions, suspect)) return found;
  if (auto found = explain_by_ranks(suspect)) return found;
  return explain_by_microbatches_of_parts(contributions, suspect);
}

}  // namespace ttrace
