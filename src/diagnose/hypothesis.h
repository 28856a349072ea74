// The hypotheses: each tests whether the candidate's values are what a certain mistake makes of the reference's.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "diagnose/diagnosis.h"
#include "merge/values.h"

namespace ttrace {

// True for tensors of at most 2^20 elements, and without `rows`. A hypothesis may read every tensor of a shape, and
// 2^20 values take a hundredth of a second.
bool is_small(const LogicalTensor& tensor);
// True where both are small, of one shape and floating-point.
bool is_comparable(const LogicalTensor& a, const LogicalTensor& b);
std::string describe_time(const TensorId& id);  // `iteration 1, micro-batch 2`

// One hypothesis makes at most so many multiplications, and gives up beyond.
inline constexpr double kMostMultiplications = 4e9;

// Fewer values than this fit a hypothesis by chance. A number that is fitted to n values of an unrelated error explains
// the share 1 / n of it on average, and three quarters of it with a probability of less than 1e-5 for n = 16.
inline constexpr std::size_t kFewestValues = 16;

// An explanation leaves at most this share of the error's norm. Where much is allowed, many predictions come near
// enough.
inline constexpr double kLargestShareLeft = 0.25;

// True where `predicted` is the candidate's number `wrong`, to within a share of its error that a single number meets by
// chance as seldom as many values meet theirs, or to within its rounding where that is more.
bool is_number_met(double predicted, double right, double wrong, Dtype dtype);

// The group of diagnoses of a loss's gradient by the weights that samples have: of its value they tell nothing.
inline constexpr std::string_view kOfWeights = "weights";

// True where one over the factors of ranks' parts averages 1: a sum over all is divided by the mean of the ranks' own
// numbers of labels, elements or weights, and each rank divides by its own.
bool are_of_own_divisors(std::span<const double> factors);
inline constexpr std::string_view kOwnDivisors =
    "; one over these numbers averages 1, as where each rank divides by a number of its own (of elements, labels, "
    "weights) in place of the mean of all ranks'";
inline constexpr std::string_view kOwnDivisorsOfMicrobatches =
    "; one over these numbers averages 1, as where the loss of each micro-batch is divided by a number of its own (of "
    "elements, labels, weights) in place of the mean of all, and all weigh alike";

// True but for a gradient that was seen under another name, as that of tied parameters: its bytes are in `seen`, where they
// are entered.
using SeenGradients = std::set<std::pair<Shape, std::uint64_t>>;
bool is_new_gradient(const LogicalTensor& gradient, SeenGradients& seen);

// A wrong tensor, as hypotheses see it.
struct Suspect {
  const Finding& finding;
  const LogicalTensor& reference;
  const LogicalTensor& candidate;
  const Evidence& evidence;
  Values reference_values, candidate_values;  // all finite; those of the candidate's replica that differs most
  std::vector<LocalTensor> parts;             // the ranks' tensors that `candidate_values` lie in
  double bound = 0;                           // the largest residual of an explanation
  double error = 0;                           // the residual of predicting the reference's values

  // Returns a diagnosis if `prediction`, or a prediction that leaves `residual`, explains the error.
  std::optional<Diagnosis> explained_by(Cause cause, const Values& prediction, const std::string& what) const {
    const double residual = relative_distance(candidate_values, prediction);
    return explained_by(cause, residual, what);
  }
  std::optional<Diagnosis> explained_by(Cause cause, double residual, const std::string& what) const {
    if (!(residual <= bound && residual <= error * kLargestShareLeft)) return std::nullopt;
    return Diagnosis{cause, residual, what};
  }
};

// These use the measured sums alone, and work for tensors of any size: factors.cpp, others.cpp.
std::optional<Diagnosis> uniform_factor(const Finding& finding, double bound, const Evidence& evidence);
std::optional<Diagnosis> zero(const Finding& finding);
// The same for a tensor of any size without `rows`, compared once more.
std::optional<Diagnosis> uniform_factor(const Finding& finding, const LogicalTensor& reference,
                                        const LogicalTensor& candidate, double bound, const Evidence& evidence);
// The same with the values: the sums of wide dtypes are rounded by more than the values are. Returns
// nothing where copies disagree.
std::optional<Diagnosis> uniform_factor(const Suspect& suspect);
// The same where the scale alone exceeds its tolerance: a factor that is smaller than the noise of an element.
std::optional<Diagnosis> factor_in_noise(const Suspect& suspect);

// The candidate's dtype is narrower, and each of its elements the reference's rounded to it, in a tensor of any size.
std::optional<Diagnosis> rounded_to_own_dtype(const LogicalTensor& reference, const LogicalTensor& candidate);

// The candidate's parameter holds the values of another one of the reference's, of any size: others.cpp.
std::optional<Diagnosis> other_parameter(const LogicalTensor& reference, const LogicalTensor& candidate, double bound,
                                         const Evidence& evidence);

// A sum over ranks or micro-batches went wrong: sums.cpp, contributions.cpp.
std::optional<Diagnosis> unreduced(const Suspect& suspect);
std::optional<Diagnosis> missing_contribution(const Suspect& suspect);
std::optional<Diagnosis> accumulated_again(const Suspect& suspect);  // fits nothing to the candidate's values
std::optional<Diagnosis> not_zeroed(const Suspect& suspect);         // fits nothing to the candidate's values
std::optional<Diagnosis> left_over(const Suspect& suspect);
std::optional<Diagnosis> reduced_along_other_axis(const Suspect& suspect);
// The values have a factor, or lack precision: factors.cpp; or a factor and a number more: lines.cpp.
std::optional<Diagnosis> rank_factor(const Suspect& suspect);
std::optional<Diagnosis> shifted_and_scaled(const Suspect& suspect);
std::optional<Diagnosis> coarser_precision(const Suspect& suspect);
std::optional<Diagnosis> rounded_numbers(const Suspect& suspect);  // of a few: a loss, a norm
// The values lie at other indices, or some of them are wrong: places.cpp, layouts.cpp, regions.cpp.
std::optional<Diagnosis> permuted_blocks(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted(const Suspect& suspect);
std::optional<Diagnosis> other_rows(const Suspect& suspect);
std::optional<Diagnosis> region(const Suspect& suspect);
// The values are those of another tensor or time: others.cpp.
std::optional<Diagnosis> never_updated(const Suspect& suspect);
std::optional<Diagnosis> bias_alone(const Suspect& suspect);
std::optional<Diagnosis> stale(const Suspect& suspect);
std::optional<Diagnosis> other_tensor(const Suspect& suspect);
// The values are a function of the reference's, or these of them: functions.cpp.
std::optional<Diagnosis> function_of_reference(const Suspect& suspect);
// A moving average of a parameter follows it otherwise: moving_averages.cpp.
std::optional<Diagnosis> follows_otherwise(const Suspect& suspect);
// Running statistics follow the samples otherwise: running_statistics.cpp.
std::optional<Diagnosis> follows_samples_otherwise(const Suspect& suspect);
// A rank's part has the values of another rank's, or of the rank's own at another time: copies.cpp.
std::optional<Diagnosis> other_part(const Suspect& suspect);
// A normalisation took the statistics of each rank's part of a row: normalised_parts.cpp.
std::optional<Diagnosis> normalised_by_part(const Suspect& suspect);
// A loss was taken over the ranks' own parts: losses.cpp. These fit nothing to the candidate's values.
std::optional<Diagnosis> loss_of_parts(const Suspect& suspect);
std::optional<Diagnosis> gradient_of_means(const Suspect& suspect);
// The cross entropy of scores is another one, as the gradient with respect to them tells: entropies.cpp.
std::optional<Diagnosis> other_cross_entropy(const Suspect& suspect);
// A gradient with respect to scores has more or less of a term that the scores tell: terms_of_scores.cpp,
// balancing_losses.cpp.
std::optional<Diagnosis> other_term_of_scores(const Suspect& suspect);
std::optional<Diagnosis> other_balancing(const Suspect& suspect);
// The gradient of a loss has other weights: weights_of_samples.cpp.
std::optional<Diagnosis> weighed_otherwise(const Suspect& suspect);
// True where the candidate's cross entropy, read from its gradient, differs from the reference's by as much as the losses
// `right` and `wrong` of their micro-batch do.
bool does_entropy_account_for(double right, double wrong, const Suspect& suspect);
// The same of scores that the candidate's softmax has further.
bool do_further_scores_account_for(double right, double wrong, const Suspect& suspect);
// The norm of gradients is that of others than all: norms.cpp.
std::optional<Diagnosis> other_norm(const Suspect& suspect);
// Says which rank makes the candidate's loss NaN, since it holds nothing to take a mean of; empty where it is no such
// loss. `bound` is how far a loss may be from what its operands make.
std::string describe_mean_of_none(const LogicalTensor& reference, const LogicalTensor& candidate, double bound,
                                  const Evidence& evidence);
// The module computed with a wrong operand: operands.cpp, attention.cpp.
std::optional<Diagnosis> stale_operand(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted_operand(const Suspect& suspect);
std::optional<Diagnosis> reinterpreted_in_attention(const Suspect& suspect);

// Returns the bias that the module has added to each element; zeros where it has none.
Values added_biases(const Suspect& suspect);

// Calls `test` with `values` as a kernel misreads them that swaps two dimensions in memory, in the whole tensor or in
// each rank's part, for all pairs of dimensions, until it returns a diagnosis. `how` describes the reading.
using Reading = std::function<std::optional<Diagnosis>(const Values& values, const std::string& how)>;
std::optional<Diagnosis> try_readings(const Values& values, const Shape& shape, const std::vector<LocalTensor>& parts,
                                      const Reading& test);

}  // namespace ttrace
