#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/tensor_name.h"
#include "merge/terms.h"
#include "merge/values.h"
#include "selfcheck/relations.h"

namespace ttrace {
namespace {

// Compares one parameter's main gradient with the sum of its micro-batches' gradients.
struct Accumulation {
  const LogicalTensor* main_grad = nullptr;
  bool usable = true;        // the sum is finite and not zero
  double factor = 0;         // main_grad = factor * sum, by least squares
  double residual = 0;       // ||main_grad - factor * sum|| / ||main_grad||
  double bound = 0;          // the largest residual that rounding explains where fp32 adds the terms up
  double narrow_bound = 0;   // the same where their own, narrower dtype does; 0 where that is fp32 or wider
  bool adds_narrow = false;  // the terms themselves are sums that were rounded to that dtype
};

// A sum that may be off by so much of itself could as well be another one.
constexpr double kSaysNothing = 0.5;

// The terms are exact in fp32, and adding n of them rounds n times, each time by half a unit. A term that is a sum over
// ranks itself was rounded once more, to the main gradient's dtype. 4 n units leave room for both. They are units of
// the terms: where these cancel, as those of the bias of attention's keys do, the sum is as much smaller than its
// error.
double allowed_residual(std::int64_t terms) { return 4 * static_cast<double>(terms) * epsilon_of(Dtype::kFloat32); }

// Each of n additions, in any order, rounds a sum whose norm is at most that of all terms together by half a unit.
double narrow_residual(const std::vector<const LogicalTensor*>& terms, double norms, double norm, Dtype narrowest) {
  if (epsilon_of(narrowest) <= epsilon_of(Dtype::kFloat32) || norm == 0) return 0;
  return static_cast<double>(terms.size()) * epsilon_of(narrowest) / 2 * norms / norm;
}

bool is_sum_over_ranks(const LogicalTensor& gradient) {
  const std::vector<Piece> pieces = gradient.pieces();
  return std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.term > 0; });
}

// Returns the norms, added up, of what was added up to the gradient, whose values are `values`.
double norm_of_parts(const LogicalTensor& gradient, const Values& values) {
  if (!is_sum_over_ranks(gradient)) return norm_of(values);
  double norms = 0;
  for (const auto& [rank, part] : values_by_rank(gradient)) norms += norm_of(part);
  return norms;
}

// Returns whether what was recorded as a micro-batch's gradient is a sum: of terms that several ranks hold, or of the
// portions that come from several calls of the module.
bool is_sum(const Alignment& alignment, const LogicalTensor& gradient) {
  if (is_sum_over_ranks(gradient)) return true;
  return find_calls(alignment, gradient.id, Kind::kOutput, owner_of(gradient.id.name)).size() > 1;
}

std::vector<Accumulation> measure_accumulations(const Alignment& alignment) {
  std::vector<Accumulation> result;
  const auto terms = terms_of_main_gradients(alignment);
  for (const auto& [id, main_grad] : alignment.tensors) {
    const auto found = terms.find({id.iteration, id.name});
    if (id.kind != Kind::kMainGrad || found == terms.end() || !fits_in_memory(main_grad)) continue;
    const Shape& shape = main_grad.shape;
    const bool fit = std::all_of(found->second.begin(), found->second.end(), [&](const LogicalTensor* term) {
      return term->shape == shape && fits_in_memory(*term);
    });
    if (!fit) continue;
    Values sum(static_cast<std::size_t>(element_count(main_grad.shape)));
    double norms = 0;
    Dtype narrowest = main_grad.dtype;
    for (const LogicalTensor* term : found->second) {
      const Values values = values_of(*term);
      norms += norm_of_parts(*term, values);
      if (epsilon_of(term->dtype) > epsilon_of(narrowest)) narrowest = term->dtype;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    const Values total = values_of(main_grad);
    const double square = dot_of(sum, sum);
    Accumulation& one = result.emplace_back();
    one.main_grad = &main_grad;
    one.usable = square > 0 && std::isfinite(square);
    if (!one.usable) continue;
    one.factor = dot_of(total, sum) / square;
    for (double& value : sum) value *= one.factor;
    one.residual = relative_distance(sum, total);
    const double norm = std::sqrt(square);
    one.bound = allowed_residual(static_cast<std::int64_t>(found->second.size())) * std::max(1.0, norms / norm);
    one.narrow_bound = narrow_residual(found->second, norms, norm, narrowest);
    one.adds_narrow = std::any_of(found->second.begin(), found->second.end(),
                                  [&](const LogicalTensor* term) { return is_sum(alignment, *term); });
  }
  return result;
}

// Returns the median factor of one iteration, 0 where there is none. A program may divide by the number of tokens or
// multiply by a loss scale; either can change between iterations, and is the same for all parameters within one.
double median_factor(const std::vector<Accumulation>& accumulations, std::int32_t iteration) {
  std::vector<double> factors;
  for (const Accumulation& one : accumulations) {
    if (one.usable && one.main_grad->id.iteration == iteration && std::isfinite(one.factor))
      factors.push_back(one.factor);
  }
  if (factors.empty()) return 0;
  std::nth_element(factors.begin(), factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2), factors.end());
  return factors[factors.size() / 2];
}

// Some programs add gradients up in fp32 (Megatron-LM), others in the parameters' own dtype (PyTorch, DeepSpeed). All
// parameters are alike in it: where fp32 explains most of them, it has to explain all but those whose terms are narrow
// sums themselves.
void choose_bounds(std::vector<Accumulation>& accumulations) {
  std::int64_t narrow = 0, exact = 0;
  for (const Accumulation& one : accumulations) {
    if (!one.usable || one.narrow_bound == 0 || one.adds_narrow) continue;
    ++narrow;
    if (one.residual <= one.bound) ++exact;
  }
  for (Accumulation& one : accumulations) {
    if (one.adds_narrow || 2 * exact < narrow) one.bound = std::max(one.bound, one.narrow_bound);
  }
}

}  // namespace

void check_accumulation(const Alignment& alignment, std::vector<Finding>& findings) {
  std::vector<Accumulation> accumulations = measure_accumulations(alignment);
  choose_bounds(accumulations);
  std::map<std::int32_t, double> common_factors;
  for (const Accumulation& one : accumulations) {
    const std::int32_t iteration = one.main_grad->id.iteration;
    if (!common_factors.contains(iteration)) common_factors[iteration] = median_factor(accumulations, iteration);
    const double common = common_factors[iteration];
    if (!one.usable) {
      findings.push_back(finding_about(*one.main_grad, Verdict::kUntrusted, Reason::kNotCheckable,
                                       "the sum of the micro-batches' gradients is zero or not finite"));
    } else if (!(one.bound < kSaysNothing)) {
      findings.push_back(finding_about(*one.main_grad, Verdict::kUntrusted, Reason::kNotCheckable,
                                       fmt::format("the micro-batches' gradients cancel: rounding explains {:.3g} of "
                                                   "their sum",
                                                   one.bound)));
    } else if (!(one.residual <= one.bound)) {
      findings.push_back(finding_about(
          *one.main_grad, Verdict::kFail, Reason::kSumDiffers,
          fmt::format(
              "is not the sum of the micro-batches' gradients, times any number: {:.3g} of it remain, allowed {:.3g}",
              one.residual, one.bound)));
    } else if (std::abs(one.factor / common - 1) > one.bound) {
      findings.push_back(finding_about(
          *one.main_grad, Verdict::kFail, Reason::kSumDiffers,
          fmt::format(
              "is {:.6g} times the sum of the micro-batches' gradients; most parameters' are {:.6g} times theirs",
              one.factor, common)));
    } else {
      findings.push_back(
          finding_about(*one.main_grad, Verdict::kPass, Reason::kNone,
                        fmt::format("is {:.6g} times the sum of the micro-batches' gradients", one.factor)));
    }
  }
}

}  // namespace ttrace
