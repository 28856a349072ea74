#include "diagnose/diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>

#include "align/holders.h"
#include "base/describe.h"
#include "base/lookup.h"
#include "diagnose/hypothesis.h"
#include "judge/match.h"
#include "judge/routing.h"

namespace ttrace {
namespace {

// Says where a hypothesis is tested.
enum class When : std::uint8_t {
  kAlways,      // also where the error is within what the tensor may differ by: its scale or its copies may be wrong
  kScaleAlone,  // where the scale alone exceeds its tolerance
  kLarge,       // where the error is larger than what the tensor may differ by
  kManyValues,  // the same, of a tensor of kFewestValues or more
};

struct Hypothesis {
  std::optional<Diagnosis> (*test)(const Suspect& suspect);
  When when;
};

// All hypotheses that are tested on values, in the order in which they are tested, the most telling first. Those that
// the measured sums answer are tested before them (`diagnose_sums`), and a wrong copy after them.
constexpr auto kHypotheses = std::to_array<Hypothesis>({
    {unreduced, When::kAlways},
    {loss_of_parts, When::kAlways},
    {factor_in_noise, When::kScaleAlone},
    {follows_samples_otherwise, When::kManyValues},  // from zero, another momentum makes a factor
    {uniform_factor, When::kLarge},
    {rounded_numbers, When::kLarge},
    {other_norm, When::kLarge},
    {never_updated, When::kLarge},
    {accumulated_again, When::kLarge},
    {not_zeroed, When::kLarge},
    {gradient_of_means, When::kManyValues},
    {other_cross_entropy, When::kManyValues},
    {other_term_of_scores, When::kManyValues},
    {other_balancing, When::kManyValues},
    {follows_otherwise, When::kManyValues},
    {bias_alone, When::kManyValues},
    {stale, When::kManyValues},
    {other_tensor, When::kManyValues},
    {function_of_reference, When::kManyValues},
    {other_part, When::kManyValues},
    {normalised_by_part, When::kManyValues},
    {permuted_blocks, When::kManyValues},
    {reinterpreted, When::kManyValues},
    {missing_contribution, When::kLarge},
    {left_over, When::kManyValues},
    {reduced_along_other_axis, When::kManyValues},
    {stale_operand, When::kManyValues},
    {reinterpreted_operand, When::kManyValues},
    {reinterpreted_in_attention, When::kManyValues},
    {other_rows, When::kManyValues},
    {rank_factor, When::kManyValues},
    {shifted_and_scaled, When::kManyValues},
    {weighed_otherwise, When::kManyValues},
    {coarser_precision, When::kManyValues},
    {region, When::kManyValues},
});

bool all_finite(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// Returns the largest residual that a prediction may leave: what the tensor may differ by, a rounding step at least. In
// fp64 it is some steps, as predictions round as well, and no mistake is so small.
double explaining_bound(const Finding& finding, const LogicalTensor& candidate) {
  const double steps = candidate.dtype == Dtype::kFloat64 ? 64 : 1;
  return std::max(finding.allowed.value_or(0), steps * epsilon_of(candidate.dtype));
}

// Tests the hypotheses that need the measured sums only. Those are of one replica, and say nothing where replicas
// differ.
std::optional<Diagnosis> diagnose_sums(const Finding& finding, double bound, bool tells_factor,
                                       const Evidence& evidence) {
  if (!finding.difference || finding.reason == Reason::kReplicasDisagree) return std::nullopt;
  if (auto diagnosis = zero(finding)) return diagnosis;
  return tells_factor ? uniform_factor(finding, bound, evidence) : std::nullopt;
}

constexpr std::int32_t kMostReplicas = 64;  // that are compared; a tensor may have thousands

// The replicas of a candidate's tensor, each compared with the reference.
struct ReplicaErrors {
  std::size_t count = 0;
  Values worst;                        // the values of the replica that differs most
  std::int32_t replica = 0, rank = 0;  // number and first rank of the worst
  std::vector<std::int32_t> wrong;     // the first rank of each wrong replica
  double largest_right = 0;            // the largest relative distance among the right ones
};

ReplicaErrors compare_replicas(const LogicalTensor& candidate, const Values& reference, double bound) {
  std::map<std::int32_t, std::int32_t> ranks;  // the first rank of each replica
  for (const Piece& piece : candidate.pieces()) {
    if (piece.replica < kMostReplicas) ranks.try_emplace(piece.replica, piece.rank);
  }
  ReplicaErrors replicas;
  double largest = -1;
  for (const auto& [replica, rank] : ranks) {
    Values values = values_of(candidate, replica);
    const double distance = relative_distance(values, reference);
    if (distance > bound) {
      replicas.wrong.push_back(rank);
    } else {
      replicas.largest_right = std::max(replicas.largest_right, distance);
    }
    ++replicas.count;
    if (!(distance > largest)) continue;
    largest = distance;
    replicas.worst = std::move(values);
    replicas.replica = replica;
    replicas.rank = rank;
  }
  return replicas;
}

bool is_large(const Suspect& suspect) {
  return suspect.finding.exceeded != Statistic::kScale && !(suspect.error <= suspect.bound);
}

bool applies(When when, const Suspect& suspect) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kScaleAlone:
      return suspect.finding.exceeded == Statistic::kScale;
    case When::kLarge:
      return is_large(suspect);
    case When::kManyValues:
      break;
  }
  return is_large(suspect) && suspect.candidate_values.size() >= kFewestValues;
}

std::optional<Diagnosis> find_explanation(const Suspect& suspect) {
  for (const auto& [test, when] : kHypotheses) {
    if (!applies(when, suspect)) continue;
    if (auto diagnosis = test(suspect)) return diagnosis;
  }
  return std::nullopt;
}

// The number that a rank's part of the suspect is the reference's times, by least squares, by rank.
std::map<std::int32_t, double> factors_of_parts(const Suspect& suspect) {
  std::map<std::int32_t, std::pair<double, double>> sums;  // of products, and of the reference's squares
  for (const LocalTensor& part : suspect.parts) {
    for (const std::int64_t place : part.positions) {
      if (place < 0) continue;
      const auto at = static_cast<std::size_t>(place);
      sums[part.rank].first += suspect.candidate_values[at] * suspect.reference_values[at];
      sums[part.rank].second += suspect.reference_values[at] * suspect.reference_values[at];
    }
  }
  std::map<std::int32_t, double> factors;
  for (const auto& [rank, sum] : sums) {
    if (sum.second > 0) factors[rank] = sum.first / sum.second;
  }
  return factors;
}

// True where the loss is the reference's but for the factor of its gradient.
bool does_factor_account_for(const LogicalTensor& right, const LogicalTensor& wrong, const Suspect& suspect) {
  const double factor = dot_of(suspect.candidate_values, suspect.reference_values) /
                        dot_of(suspect.reference_values, suspect.reference_values);
  return is_number_met(values_of(wrong)[0] / factor, values_of(wrong)[0], values_of(right)[0], right.dtype);
}

// Says that the terms of the loss have the factors that the ranks' parts of its gradient have, beside a loss scale, which
// is a power of two and may be in the loss, too; nothing where the reference's loss is another than the terms make
// without these.
std::optional<std::string> describe_factors_of_loss(const LogicalTensor& right, const LogicalTensor& wrong,
                                                    const Suspect& suspect) {
  const std::map<std::int32_t, double> factors = factors_of_parts(suspect);
  if (factors.empty() || !(factors.begin()->second > 0)) return std::nullopt;
  const double scale = std::exp2(std::round(std::log2(factors.begin()->second)));
  double without_factors = 0;
  std::vector<double> of_ranks;
  std::vector<std::string> words;
  for (const auto& [rank, term] : values_by_rank(wrong)) {
    const auto found = factors.find(rank);
    if (found == factors.end()) return std::nullopt;
    const double factor = found->second / scale;
    without_factors += term[0] / factor;
    of_ranks.push_back(factor);
    if (std::abs(factor - 1) > suspect.bound) words.push_back(fmt::format("{:.4g} on rank {}", factor, rank));
  }
  const double of_reference = values_of(right)[0];
  const auto is_reference = [&](double predicted) {
    return is_number_met(predicted, values_of(wrong)[0], of_reference, right.dtype);
  };
  if (!is_reference(without_factors) && !is_reference(without_factors / scale)) return std::nullopt;
  return fmt::format("the parts of some ranks are the reference's times a number: {}{}{}", comma_list(words),
                     scale == 1 ? "" : fmt::format(", beside a loss scale of {:.4g}", scale),
                     are_of_own_divisors(of_ranks) ? kOwnDivisors : "");
}

std::optional<Diagnosis> diagnose_replicas(const ReplicaErrors& replicas, const Suspect& suspect) {
  if (replicas.wrong.size() == replicas.count) return std::nullopt;
  return suspect.explained_by(Cause::kRegion, replicas.largest_right,
                              fmt::format("wrong in the copy of rank {} only ({} of {} copies), right elsewhere",
                                          fmt::join(replicas.wrong, ", "), replicas.wrong.size(), replicas.count));
}

// Returns the suspect that the finding is about, of small tensors of one shape; nothing where its values are not finite.
std::optional<Suspect> suspect_of(const Finding& finding, const LogicalTensor& reference,
                                  const LogicalTensor& candidate, double bound, const Evidence& evidence,
                                  const ReplicaErrors& replicas, Values reference_values) {
  Suspect suspect{finding,
                  reference,
                  candidate,
                  evidence,
                  std::move(reference_values),
                  replicas.worst,
                  local_tensors_of(candidate, replicas.replica),
                  bound,
                  0};
  if (!all_finite(suspect.reference_values) || !all_finite(suspect.candidate_values)) return std::nullopt;
  suspect.error = relative_distance(suspect.candidate_values, suspect.reference_values);
  return suspect;
}

std::optional<Diagnosis> diagnose_values(const Finding& finding, const LogicalTensor& reference,
                                         const LogicalTensor& candidate, const Evidence& evidence) {
  const double bound = explaining_bound(finding, candidate);
  const bool is_factor_told = finding.id.kind == Kind::kBufferAfter && is_small(candidate);  // among `kHypotheses`
  if (auto diagnosis = diagnose_sums(finding, bound, !is_factor_told, evidence)) return diagnosis;
  if (reference.shape != candidate.shape || reference.rows || candidate.rows) return std::nullopt;
  if (finding.difference && finding.difference->rel_err() > bound) {
    const double near = std::min(bound, finding.difference->rel_err() * kLargestShareLeft);
    if (auto diagnosis = other_parameter(reference, candidate, near, evidence)) return diagnosis;
  }
  if (!is_small(reference) || !is_small(candidate)) {
    const bool is_measured = finding.difference && finding.reason != Reason::kReplicasDisagree;
    return is_measured ? uniform_factor(finding, reference, candidate, bound, evidence) : std::nullopt;
  }
  const Values reference_values = values_of(reference);
  const ReplicaErrors replicas = compare_replicas(candidate, reference_values, bound);
  const auto suspect = suspect_of(finding, reference, candidate, bound, evidence, replicas, reference_values);
  if (!suspect) return std::nullopt;
  auto diagnosis = find_explanation(*suspect);
  if (!diagnosis) return is_large(*suspect) ? diagnose_replicas(replicas, *suspect) : std::nullopt;
  // Terms that were not added up are all copies.
  if (finding.reason == Reason::kReplicasDisagree && diagnosis->cause != Cause::kUnreduced) {
    diagnosis->what = fmt::format("the copy of rank {}: {}", replicas.rank, diagnosis->what);
  }
  return diagnosis;
}

// Diagnoses, of tensors of routed tokens, the rows that both hold, as plain tensors: each side may hold others.
std::optional<Diagnosis> diagnose_common_rows(const Finding& finding, const LogicalTensor& reference,
                                              const LogicalTensor& candidate, const Evidence& evidence) {
  std::vector<std::int64_t> rows;
  std::set_intersection(reference.rows->begin(), reference.rows->end(), candidate.rows->begin(), candidate.rows->end(),
                        std::back_inserter(rows));
  return diagnose_values(finding, keep_rows(reference, rows), keep_rows(candidate, rows), evidence);
}

// Describes the first element that is not finite, and the ranks that hold it; empty for a tensor that is too large.
std::string describe_first_nonfinite(const LogicalTensor& candidate) {
  if (!is_small(candidate)) return {};
  const Values values = values_of(candidate);
  const auto first = std::find_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  if (first == values.end()) return {};
  const std::int64_t element = first - values.begin();
  return fmt::format(" (first at element {}: {}, on rank {})", element, std::isnan(*first) ? "NaN" : "Inf",
                     fmt::join(ranks_holding(candidate, element), ", "));
}

}  // namespace

bool is_small(const LogicalTensor& tensor) {
  return element_count(tensor.shape) <= std::int64_t{1} << 20 && !tensor.rows && !tensor.sketched;
}

bool is_number_met(double predicted, double right, double wrong, Dtype dtype) {
  const double error = std::abs(wrong - right);
  const double least = std::max(error / static_cast<double>(kFewestValues), epsilon_of(dtype) * std::abs(wrong));
  return std::abs(predicted - wrong) <= kLargestShareLeft * std::min(error, least);
}

bool is_rounding(const Finding& finding, const Evidence& evidence) {
  if (!evidence.by_bits || evidence.rounding == nullptr || !finding.difference) return false;
  if (finding.reason != Reason::kExceedsTolerance && finding.reason != Reason::kRecomputeDiffers) return false;
  const std::optional<double> allowed = allowance_for(*evidence.rounding, finding.id).allowed;
  return allowed && finding.difference->rel_err() <= *allowed;
}

std::optional<Diagnosis> diagnose_rounding(const Finding& finding, const Evidence& evidence) {
  if (!is_wrong(finding)) return std::nullopt;
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr || finding.reason == Reason::kReplicasDisagree) return std::nullopt;
  return rounded_to_own_dtype(*reference, *candidate);
}

std::optional<Diagnosis> diagnose(const Finding& finding, bool made_here, const Evidence& evidence) try {
  if (finding.verdict == Verdict::kMissing) return Diagnosis{Cause::kMissing, 0, "it is not there"};
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr) return std::nullopt;
  if (finding.reason == Reason::kNotFinite) {
    std::string where = made_here ? ", though all that it was computed from is" : " where it first shows";
    if (made_here) {
      where += describe_mean_of_none(*reference, *candidate, explaining_bound(finding, *candidate), evidence);
    }
    return Diagnosis{Cause::kNotFinite, 0,
                     fmt::format("it is not finite{}{}", describe_first_nonfinite(*candidate), where), where};
  }
  if (auto rounding = diagnose_rounding(finding, evidence)) return rounding;
  if (reference->rows && candidate->rows) return diagnose_common_rows(finding, *reference, *candidate, evidence);
  return diagnose_values(finding, *reference, *candidate, evidence);
} catch (const RecordedAsSketch&) {
  return std::nullopt;
}

std::optional<Diagnosis> diagnose_gradient_of_loss(const Finding& finding, const Finding& loss,
                                                   const Evidence& evidence) try {
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  const LogicalTensor* right = counterpart(evidence.reference, loss.id);
  const LogicalTensor* wrong = find_tensor(evidence.candidate, loss.id);
  if (reference == nullptr || candidate == nullptr || right == nullptr || wrong == nullptr) return std::nullopt;
  if (!is_comparable(*reference, *candidate) || !is_comparable(*right, *wrong)) return std::nullopt;
  const double bound = explaining_bound(finding, *candidate);
  const Values values = values_of(*reference);
  const auto suspect =
      suspect_of(finding, *reference, *candidate, bound, evidence, compare_replicas(*candidate, values, bound), values);
  if (!suspect) return std::nullopt;
  auto found = other_cross_entropy(*suspect);
  bool accounts = found && does_entropy_account_for(values_of(*right)[0], values_of(*wrong)[0], *suspect);
  if (!found) {
    found = diagnose(finding, false, evidence);
    accounts = found && found->cause == Cause::kUniformFactor && does_factor_account_for(*right, *wrong, *suspect);
    accounts = accounts || (found && found->cause == Cause::kOtherLoss &&
                            do_further_scores_account_for(values_of(*right)[0], values_of(*wrong)[0], *suspect));
  }
  const bool has_rank_factors = found && (found->cause == Cause::kRankFactor || found->cause == Cause::kMeanOfMeans);
  if (has_rank_factors && !accounts) {
    const auto what = describe_factors_of_loss(*right, *wrong, *suspect);
    accounts = what.has_value();
    if (what && found->cause == Cause::kRankFactor) found->what = *what;
  }
  if (found && !accounts && found->group == kOfWeights) {
    found->what += "; by how much the loss itself is wrong they do not tell";
  } else if (found && !accounts) {
    // Where a gradient is wrong says nothing of how much; a number of times does.
    constexpr std::array kOfSize = {Cause::kUniformFactor, Cause::kRankFactor, Cause::kMeanOfMeans, Cause::kOtherLoss};
    const bool tells_size = std::ranges::find(kOfSize, found->cause) != kOfSize.end();
    if (tells_size) found->what += "; that does not account for all that the loss is wrong by";
    found->cause = Cause::kRegion;
  }
  return found;
} catch (const RecordedAsSketch&) {
  return std::nullopt;
}

}  // namespace ttrace
