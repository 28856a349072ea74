#include "judge/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "align/holders.h"
#include "judge/messages.h"
#include "merge/values.h"
#include "tolerance/family.h"

namespace ttrace {
namespace {

// `ranks_holding` names ranks until they hold this share of the squared difference: 99.5 % of its norm.
constexpr double kShareOfSquare = 0.99;

void set_verdict(Finding& finding, Verdict verdict, Reason reason, const std::string& what) {
  finding.verdict = verdict;
  finding.reason = reason;
  finding.message = fmt::format("{}: {}", to_string(finding.id), what);
}

double reference_replica_rel_err(const Difference& difference) {
  if (difference.reference_replica_square == 0) return 0;
  return std::sqrt(difference.reference_replica_square) / std::sqrt(difference.reference_square);
}

// Copies may differ from each other by what one of them is allowed to differ from the reference. `ranks` whose values
// differ while `square` is 0 hold NaN or Inf that the other copies do not.
bool copies_disagree(const std::vector<std::int32_t>& ranks, double square, double rel_err, double allowed) {
  return !ranks.empty() && (square == 0 || !(rel_err <= allowed));
}

// Returns true, and sets the verdict, when the copies of either side disagree.
bool judge_replicas(Finding& finding, const Difference& difference, double allowed) {
  if (copies_disagree(difference.replica_ranks, difference.replica_square, difference.replica_rel_err(), allowed)) {
    set_verdict(finding, Verdict::kFail, Reason::kReplicasDisagree,
                describe_replicas("", difference.replica_ranks, difference.replica_rel_err(), allowed));
    finding.ranks = difference.replica_ranks;
    return true;
  }
  const double reference_rel_err = reference_replica_rel_err(difference);
  if (copies_disagree(difference.reference_replica_ranks, difference.reference_replica_square, reference_rel_err,
                      allowed)) {
    set_verdict(
        finding, Verdict::kFail, Reason::kReplicasDisagree,
        describe_replicas("in the reference, ", difference.reference_replica_ranks, reference_rel_err, allowed));
    return true;
  }
  return false;
}

// Returns what copies of a parameter, of the gradient that its optimizer uses or of its step may differ by: nothing.
// Ranks that updated their copies by different gradients would hold different models from then on, however near these
// are to each other; and a copy that was not brought up to date may be nearer than rounding is to the reference. The
// gradient of one micro-batch is not that far yet: it may still be reduced.
double allowed_between_copies(const Finding& finding) {
  const bool is_one_value = is_parameter_kind(finding.id.kind) && finding.id.kind != Kind::kParamGrad;
  return is_one_value ? 0 : finding.allowed.value_or(0);
}

void judge_exact(Finding& finding, const TensorPair& pair, const Difference& difference) {
  if (judge_replicas(finding, difference, 0)) return;
  if (difference.differing == 0) return;
  finding.ranks = with_ranks_of_same_boxes(*pair.candidate, ranks_holding(difference));
  set_verdict(finding, Verdict::kFail, Reason::kIntegerDiffers, describe_exact(difference, finding.ranks));
}

// True where one side is bool and the other floating. A mask may be either, and what is added where it hides something
// is another value than true or false.
bool is_mask_of_two_forms(const TensorPair& pair) {
  const Dtype a = pair.reference->dtype, b = pair.candidate->dtype;
  return (a == Dtype::kBool && is_floating(b)) || (is_floating(a) && b == Dtype::kBool);
}

void judge_mask(Finding& finding, const TensorPair& pair, const Difference& difference) {
  if (judge_replicas(finding, difference, 0)) return;
  if (difference.differing == 0 && difference.nonfinite_mismatch == 0) return;
  set_verdict(finding, Verdict::kUntrusted, Reason::kDtypeMismatch,
              fmt::format("{} in the reference and {} in the candidate, with other values, as masks of two kinds have; "
                          "what it does shows in what is computed with it",
                          name_of(pair.reference->dtype), name_of(pair.candidate->dtype)));
}

// True where a perturbed run of the reference has had zero: it was as far from the reference's as zero is. So an update
// is that is smaller than its parameter's rounding.
bool was_zero(const Tolerance* tolerance) {
  return tolerance != nullptr && std::ranges::find(tolerance->samples, 1.0) != tolerance->samples.end();
}

// Says what a tensor, of which any value within `allowed` of 1 or more might be noise, has that noise has not. Empty
// where nothing. A few elements may be small together by chance, so their norm has no lower end but zero.
std::string objection_to_noise(const Difference& difference, double allowed, const Tolerance* tolerance) {
  constexpr std::int64_t kFew = 4;
  if (difference.reference_square == 0) return "";
  const bool is_few = difference.elements < kFew;
  if (difference.candidate_square == 0) {
    // A sum of a few terms that cancel may be zero where its rounding is as large as the reference's.
    const bool may_be_zero = was_zero(tolerance) || (is_few && tolerance != nullptr && tolerance->floor >= 1);
    return may_be_zero ? "" : "zero, and the reference is not";
  }
  const double most = kNoiseSpan * allowed;
  if (!(difference.rel_err() <= most)) {
    return fmt::format("rel_err {:.3g}: more than {} times what is allowed, {:.3g}, and that is noise",
                       difference.rel_err(), kNoiseSpan, allowed);
  }
  const double ratio = std::sqrt(difference.candidate_square) / std::sqrt(difference.reference_square);
  if (!is_few && ratio * kNoiseSpan * (1 + allowed) < 1) {
    return fmt::format("its norm is {:.3g} of the reference's: too little for noise, which may differ by {:.3g}", ratio,
                       allowed);
  }
  return "";
}

// Returns the ranks that hold what a statistic found: where it is about a place, those of the worst element, if it lies
// there.
std::vector<std::int32_t> ranks_of(Statistic statistic, const TensorPair& pair, const Difference& difference) {
  const bool there = statistic == Statistic::kElement ||
                     (statistic == Statistic::kRow && row_of_worst(difference, pair) == difference.worst_row);
  if (statistic == Statistic::kCell) {
    return with_ranks_of_same_boxes(*pair.candidate, std::vector<std::int32_t>{difference.sketch->worst_rank});
  }
  return with_ranks_of_same_boxes(*pair.candidate,
                                  there ? std::vector<std::int32_t>{difference.worst_rank} : ranks_holding(difference));
}

// Returns the share of the squared difference that is where, or as, the statistic says. An element has no more than its
// row, and is named if it has most of that.
double share_of(Statistic statistic, const Difference& difference) {
  switch (statistic) {
    case Statistic::kScale:
      return std::pow(difference.scale_err() / difference.rel_err(), 2);
    case Statistic::kRow:
      return difference.row_square / difference.difference_square;
    case Statistic::kCell:
      return difference.sketch->cell_square / difference.difference_square;
    default:
      return 2 * std::pow(difference.max_abs, 2) / difference.difference_square;
  }
}

// Judges what the norm let pass by the statistics beside it. Of several that exceed their tolerances the one is named
// that explains most.
void judge_statistics(Finding& finding, const TensorPair& pair, const Difference& difference) {
  const JudgedStatistic* exceeded = nullptr;
  for (const JudgedStatistic& judged : finding.statistics) {
    if (std::fabs(judged.measured) <= judged.allowed) continue;
    const bool explains_more =
        exceeded == nullptr || share_of(judged.statistic, difference) > share_of(exceeded->statistic, difference);
    if (explains_more) exceeded = &judged;
  }
  if (exceeded == nullptr) return;
  finding.exceeded = exceeded->statistic;
  finding.ranks = ranks_of(exceeded->statistic, pair, difference);
  set_verdict(finding, Verdict::kFail, Reason::kExceedsTolerance,
              describe_statistic(pair, difference, *exceeded, finding.ranks));
}

// Counts the places of a difference, which was measured without some tokens, as in the tensor with all of them.
void count_in_whole(const KeptTokens& kept, Difference& difference) {
  if (!difference.worst_index.empty()) {
    Shape index = index_at(kept.token_at(difference.worst_index[0]), {kept.whole.begin(), kept.whole.end() - 1});
    index.push_back(difference.worst_index[1]);
    difference.worst_index = std::move(index);
  }
  if (difference.worst_row >= 0) difference.worst_row = kept.token_at(difference.worst_row);
}

// True of a tensor that is zero in the reference, as others of its name are not, and is here no larger than rounding
// has made it in runs of the reference.
bool is_rounding_of_zero(const Difference& difference, const Tolerance* tolerance, double margin) {
  if (tolerance == nullptr || !tolerance->of_zero) return false;
  if (difference.reference_square > 0 || difference.candidate_square == 0) return false;
  return std::sqrt(difference.candidate_square) <= kNoiseSpan * margin * *tolerance->of_zero;
}

// Judges a pair whose NaN and Inf are at the same places on both sides.
void judge_floating(Finding& finding, const TensorPair& pair, const Difference& difference,
                    const Tolerance* tolerance) {
  if (judge_replicas(finding, difference, allowed_between_copies(finding))) return;
  if (difference.reference_nan + difference.reference_inf == difference.elements) {
    return set_verdict(finding, Verdict::kUntrusted, Reason::kEmpty, "no element is finite");
  }
  if (2 * difference.reference_nan > difference.elements) {
    return set_verdict(finding, Verdict::kUntrusted, Reason::kEmpty,
                       fmt::format("{} of {} elements are NaN", difference.reference_nan, difference.elements));
  }
  if (difference.differing == 0) {
    if (difference.reference_square > 0) return;
    return set_verdict(finding, Verdict::kUntrusted, Reason::kAllZero, "zero on both sides");
  }
  if (difference.sketch && difference.difference_square == 0 && !(finding.allowed.value_or(0) > 0)) {
    return set_verdict(finding, Verdict::kUntrusted, Reason::kNoTolerance,
                       "equal sketches, which do not show that every element is equal");
  }
  if (!finding.allowed && is_optimizer_state(finding.id.kind)) {
    return set_verdict(
        finding, Verdict::kUntrusted, Reason::kNotCheckable,
        fmt::format("rel_err {:.3g}, and not all perturbed runs recorded it, as its step needs it in some "
                    "alone; that is compared",
                    difference.rel_err()));
  }
  if (!finding.allowed) {
    return set_verdict(finding, Verdict::kUntrusted, Reason::kNoTolerance,
                       fmt::format("rel_err {:.3g}, and the tolerance file does not list it", difference.rel_err()));
  }
  const double allowed = *finding.allowed;
  if (allowed >= 1) {
    if (const std::string objection = objection_to_noise(difference, allowed, tolerance); !objection.empty()) {
      finding.ranks = with_ranks_of_same_boxes(*pair.candidate, ranks_holding(difference));
      return set_verdict(finding, Verdict::kFail, Reason::kExceedsTolerance, objection);
    }
    return set_verdict(
        finding, Verdict::kUntrusted, Reason::kNoise,
        fmt::format("rel_err {:.3g}, allowed {:.3g}: noise as large as the value", difference.rel_err(), allowed));
  }
  if (allowed > 0 && difference.rel_err() <= allowed) return judge_statistics(finding, pair, difference);
  finding.ranks = with_ranks_of_same_boxes(*pair.candidate, ranks_holding(difference));
  set_verdict(finding, Verdict::kFail, Reason::kExceedsTolerance,
              describe_excess(pair, difference, allowed, finding.ranks));
}

// Lets nothing pass by what a choice has moved that rounding decides. Steps, and what follows them, jump by themselves.
void judge_choice(Finding& finding, const Tolerance& tolerance, double margin) {
  if (finding.verdict != Verdict::kPass || jumps(finding.id.kind) || finding.light ||
      finding.difference->differing == 0)
    return;
  const std::optional<double> allowed = allowed_without_choice(tolerance, margin);
  if (!allowed || finding.difference->rel_err() <= *allowed) return;
  set_verdict(
      finding, Verdict::kUntrusted, Reason::kNoise,
      fmt::format("rel_err {:.3g}: rounding decides a choice, as of which of equal scores are the largest, which "
                  "moves it so in runs of the reference; without that {:.3g} is allowed",
                  finding.difference->rel_err(), *allowed));
}

bool has_terms(const LogicalTensor& tensor) {
  return std::ranges::any_of(tensor.pieces(), [](const Piece& piece) { return piece.term > 0; });
}

// What a single number may differ by that is a sum of terms on several ranks, of which each is rounded as it is large: they
// may cancel. 0 for other tensors.
double allowed_of_terms(const TensorPair& pair, const Difference& difference) {
  constexpr double kRoundings = 2;
  const LogicalTensor& sum = *pair.candidate;
  const bool is_known = difference.elements == 1 && difference.reference_square > 0 && !difference.sketch;
  if (!is_known || !has_terms(sum)) return 0;
  double size = 0;
  for (const auto& [rank, term] : values_by_rank(sum)) size += std::fabs(term[0]);
  return kRoundings * epsilon_of(sum.dtype) * size / std::sqrt(difference.reference_square);
}

}  // namespace

Finding finding_about(const LogicalTensor& tensor, Verdict verdict, Reason reason, const std::string& what) {
  Finding finding;
  finding.id = tensor.id;
  finding.order = tensor.order;
  finding.guessed = tensor.guessed;
  set_verdict(finding, verdict, reason, what);
  return finding;
}

std::vector<std::int32_t> ranks_holding(const Difference& difference) {
  std::vector<std::pair<double, std::int32_t>> shares;
  double total = 0;
  for (const auto& [rank, square] : difference.square_by_rank) {
    shares.emplace_back(square, rank);
    total += square;
  }
  std::sort(shares.begin(), shares.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<std::int32_t> ranks;
  double held = 0;
  for (const auto& [square, rank] : shares) {
    if (square == 0 || held >= kShareOfSquare * total) break;
    held += square;
    ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

PairsById index_pairs(std::span<const TensorPair> pairs) {
  PairsById result;
  for (const TensorPair& pair : pairs) result[pair.candidate->id] = &pair;
  return result;
}

void let_pass(Finding& finding) {
  finding.verdict = Verdict::kPass;
  finding.reason = Reason::kNone;
  finding.message.clear();
}

Finding judge(const TensorPair& pair, const Difference& measured, const ToleranceFile* tolerance) {
  Finding finding;
  finding.id = pair.candidate->id;
  finding.order = pair.reference->order;
  finding.guessed = pair.candidate->guessed;
  finding.light = pair.reference->light || pair.candidate->light;
  finding.difference = measured;
  if (pair.reference->kept) count_in_whole(*pair.reference->kept, *finding.difference);
  const Difference& difference = *finding.difference;
  set_verdict(finding, Verdict::kPass, Reason::kNone, "same");
  const bool exact = !is_floating(pair.reference->dtype) || !is_floating(pair.candidate->dtype);
  if (!exact) finding.allowed = 0;
  Allowance allowance;
  if (!exact && tolerance != nullptr) {
    allowance = allowance_for(*tolerance, finding.id);
    finding.allowed = allowance.allowed;
    finding.by_override = allowance.by_override;
    if (allowance.tolerance != nullptr && finding.light) {
      finding.allowed =
          kLightSlack * std::max(*finding.allowed, tolerance->margin * allowance.tolerance->light.value_or(0));
    } else if (allowance.tolerance != nullptr) {
      finding.statistics = measure_statistics(difference, *allowance.tolerance);
    }
    if (difference.sketch && finding.allowed) *finding.allowed *= difference.sketch->widening;
    if (finding.allowed && !finding.by_override) {
      finding.allowed = std::max(*finding.allowed, allowed_of_terms(pair, difference));
    }
  }
  finding.floating = !exact;

  if (difference.elements == 0) {
    set_verdict(finding, Verdict::kUntrusted, Reason::kEmpty, "no elements");
  } else if (is_mask_of_two_forms(pair)) {
    judge_mask(finding, pair, difference);
  } else if (difference.nonfinite_mismatch > 0) {
    for (const auto& [rank, count] : difference.nonfinite_by_rank) {
      if (count > 0) finding.ranks.push_back(rank);
    }
    set_verdict(finding, Verdict::kFail, Reason::kNotFinite, describe_nonfinite(difference));
  } else if (exact) {
    judge_exact(finding, pair, difference);
  } else if (is_rounding_of_zero(difference, allowance.tolerance, tolerance != nullptr ? tolerance->margin : 0)) {
    set_verdict(finding, Verdict::kUntrusted, Reason::kNoise,
                fmt::format("zero in the reference, norm {:.3g} here: rounding alone has made it {:.3g}",
                            std::sqrt(difference.candidate_square), *allowance.tolerance->of_zero));
  } else {
    judge_floating(finding, pair, difference, allowance.tolerance);
    if (allowance.tolerance != nullptr) judge_choice(finding, *allowance.tolerance, tolerance->margin);
  }
  finding.excused = allowance.by_override && !is_wrong(finding) && difference.differing > 0 &&
                    !(difference.rel_err() <= allowance.estimated.value_or(0));
  return finding;
}

Finding judge_recompute(const TensorPair& pair, const Difference& difference, const ToleranceFile* tolerance) {
  Finding finding = judge(pair, difference, tolerance);
  const bool value_differs = finding.reason == Reason::kExceedsTolerance || finding.reason == Reason::kNotFinite ||
                             finding.reason == Reason::kIntegerDiffers;
  if (value_differs) {
    finding.reason = Reason::kRecomputeDiffers;
    finding.message += " (here the reference is the candidate's own first forward)";
  }
  return finding;
}

}  // namespace ttrace
