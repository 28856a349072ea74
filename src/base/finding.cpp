#include "base/finding.h"

#include <array>
#include <cmath>
#include <tuple>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

constexpr auto kVerdictWords = std::to_array<Word<Verdict>>({
    {Verdict::kPass, "pass", "equal, or closer than is allowed"},
    {Verdict::kFail, "fail", "differs by more than is allowed, or is not well formed"},
    {Verdict::kUntrusted, "untrusted", "compared, but proves little; the reason says why"},
    {Verdict::kMissing, "missing", "one side holds it, the other does not, or holds it in part"},
    {Verdict::kNotSeen, "not-seen", "the same, and that side's recorder said that it could not record it"},
});
static_assert(has_every_enumerator<kVerdictWords>());

constexpr auto kReasonWords = std::to_array<Word<Reason>>({
    {Reason::kNone, "none", "pass: nothing is wrong"},
    {Reason::kStepCountDiffers, "step-count-differs",
     "fail: the optimizer steps another number of times in the iteration, which goes on for more or fewer "
     "micro-batches"},
    {Reason::kOptionsDiffer, "options-differ",
     "fail: the optimizer's options, or the optimizer, are not the reference's"},
    {Reason::kStepDiffers, "step-differs",
     "fail: not the step that the run's own gradients, options and state give, or the reference's"},
    {Reason::kCopyDiffers, "copy-differs", "fail: the parameter is not what the optimizer's step made of it, rounded"},
    {Reason::kExceedsTolerance, "exceeds-tolerance", "fail: differs by more than is allowed"},
    {Reason::kNotFinite, "not-finite", "fail: NaN or Inf on one side only, or more on one side"},
    {Reason::kIntegerDiffers, "integer-differs", "fail: integers and bool are compared exactly"},
    {Reason::kReplicasDisagree, "replicas-disagree", "fail: ranks that hold the same elements have other values"},
    {Reason::kRecomputeDiffers, "recompute-differs", "fail: the recomputed forward is not the first forward"},
    {Reason::kShapeMismatch, "shape-mismatch", "fail: the merged shape is not the reference's"},
    {Reason::kTruncated, "truncated",
     "fail: a rank is given the beginnings of its samples alone, and what they lack is no padding"},
    {Reason::kDtypeMismatch, "dtype-mismatch",
     "fail: a parameter is floating on one side and integer on the other, or narrower than the reference's; "
     "untrusted: a mask is bool on one side and floating on the other"},
    {Reason::kOverlap, "overlap", "fail: elements are filled twice without a declaration"},
    {Reason::kDuplicateTensor, "duplicate-tensor", "fail: one rank holds the same canonical tensor twice"},
    {Reason::kDuplicateRank, "duplicate-rank", "fail: a rank is there twice"},
    {Reason::kRoutingDiffers, "routing-differs", "fail: tokens went to other experts, and it was no near tie"},
    {Reason::kProductDiffers, "product-differs", "fail: not the product of its own recorded operands (`abft`)"},
    {Reason::kLookupDiffers, "lookup-differs", "fail: not the rows of the weight that the ids name (`abft`)"},
    {Reason::kSumDiffers, "sum-differs", "fail: not the sum of its recorded terms (`abft`)"},
    {Reason::kMissingInCandidate, "missing-in-candidate", "missing: the candidate has no such tensor"},
    {Reason::kMissingInReference, "missing-in-reference", "missing: the reference has no such tensor"},
    {Reason::kOmission, "omission", "missing: some elements, or some replicas, are not there"},
    {Reason::kMissingRank, "missing-rank", "missing: a rank has no file"},
    {Reason::kIncompleteRank, "incomplete-rank", "missing: the rank's file has no completion mark"},
    {Reason::kNotSeenInCandidate, "not-seen-in-candidate",
     "not-seen: the candidate's recorder said that it could not record it"},
    {Reason::kNotSeenInReference, "not-seen-in-reference",
     "not-seen: the reference's recorder said that it could not record it"},
    {Reason::kNotRecordedInCandidate, "not-recorded-in-candidate",
     "not-seen: the candidate's trace holds less by design"},
    {Reason::kNotRecordedInReference, "not-recorded-in-reference",
     "not-seen: the reference's trace holds less by design"},
    {Reason::kNoTolerance, "no-tolerance", "untrusted: it differs, and no tolerance says by how much it may"},
    {Reason::kAllZero, "all-zero", "untrusted: both sides are zero"},
    {Reason::kNoise, "noise", "untrusted: the tolerance is 1 or more, and no more than the magnitude could be checked"},
    {Reason::kEmpty, "empty", "untrusted: no elements, or none that is finite on both sides"},
    {Reason::kNotCheckable, "not-checkable", "untrusted: no relation could be tested (`abft`)"},
    {Reason::kRerouted, "re-routed",
     "untrusted: differs by no more than the tokens that a near tie sent elsewhere can explain"},
    {Reason::kGuessedPlacement, "guessed-placement",
     "untrusted: differs where its shape places it, and neither annotations nor the program nor bytes say that it lies "
     "there"},
    {Reason::kOwnNumbers, "own-numbers",
     "untrusted: follows from random numbers that were drawn, or from statistics of a batch that were taken, by each "
     "rank for itself"},
    {Reason::kUnknownLossScale, "unknown-loss-scale",
     "untrusted: a multiple of the reference's, as a loss scale makes it that was not said; what steps take is right"},
    {Reason::kNearUnmeasured, "near-unmeasured",
     "untrusted: exceeds by little a tolerance that was not measured, or that of few numbers which no perturbed "
     "run moved, and nothing explains the error"},
    {Reason::kPossibleJump, "possible-jump",
     "untrusted: of a light iteration, in which a gradient differs in one channel alone, as where rounding moves an "
     "activation over a kink"},
    {Reason::kOwnStatistics, "own-statistics",
     "untrusted: running statistics that each rank takes of its own samples, by the class of the module"},
    {Reason::kOtherNames, "other-names",
     "missing or untrusted: by its name alone, where the two sides share hardly a name, or names are numbers by the "
     "order of steps"},
    {Reason::kChangedAfter, "changed-after",
     "untrusted: differs between ranks where the program changes parameters after their step"},
    {Reason::kOtherMicrobatches, "other-microbatches",
     "untrusted: of a micro-batch that the other side, which cuts the batch otherwise, does not run, or of a module "
     "that one side calls more often where training is right"},
});
static_assert(has_every_enumerator<kReasonWords>());

constexpr auto kStatisticWords = std::to_array<Word<Statistic>>({
    {Statistic::kNorm, "rel_err", "the norm of the difference over that of the reference"},
    {Statistic::kScale, "scale", "by how much the candidate is a multiple of the reference"},
    {Statistic::kRow, "row", "the largest norm of a row's difference, in units of the mean row"},
    {Statistic::kElement, "element", "the largest difference of an element, in units of the mean element"},
    {Statistic::kCoherence, "coherence",
     "the scale that several tensors have in common; it stands with the first tensor of its group"},
    {Statistic::kCell, "cell", "the largest norm of a cell's difference, of sketches, in place of row and element"},
});
static_assert(has_every_enumerator<kStatisticWords>());

bool is_about_ranks(const Finding& finding) { return finding.id.name.empty(); }

}  // namespace

Vocabulary<Verdict> vocabulary_of(Verdict) { return {"Verdict", kVerdictWords}; }
Vocabulary<Reason> vocabulary_of(Reason) { return {"Reason", kReasonWords}; }
Vocabulary<Statistic> vocabulary_of(Statistic) { return {"StatisticName", kStatisticWords}; }

std::string_view name_of(Verdict verdict) { return word_in<Verdict>(kVerdictWords, verdict); }
std::string_view name_of(Reason reason) { return word_in<Reason>(kReasonWords, reason); }
std::string_view name_of(Statistic statistic) { return word_in<Statistic>(kStatisticWords, statistic); }

Phase phase_of(const TensorId& id) {
  switch (id.kind) {
    case Kind::kInput:
    case Kind::kOutput:
      return id.pass == Pass::kRecompute ? Phase::kRecompute : Phase::kForward;
    case Kind::kGradOutput:
    case Kind::kGradInput:
      return Phase::kBackward;
    case Kind::kParam:
    case Kind::kMaster:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
    case Kind::kMaxExpAvgSq:
    case Kind::kMomentumBuffer:
    case Kind::kBuffer:
      return Phase::kParameters;
    case Kind::kParamGrad:
      return Phase::kParamGrad;
    case Kind::kMainGrad:
      return Phase::kMainGrad;
    case Kind::kStepGrad:
    case Kind::kParamDelta:
      return Phase::kDelta;
    case Kind::kParamAfter:
    case Kind::kBufferAfter:
      return Phase::kAfter;
    case Kind::kScalar:
      break;
  }
  return is_loss(id) ? Phase::kLoss : Phase::kStepScalar;
}

bool is_loss(const TensorId& id) {
  return id.kind == Kind::kScalar && (id.microbatch != kNoMicrobatch || TensorName(id.name).path.ends_with("loss"));
}

bool is_loss_of_backward(const TensorId& id) {
  return id.kind == Kind::kScalar && id.microbatch != kNoMicrobatch && TensorName(id.name).path == "loss";
}

bool is_wrong(const Finding& finding) {
  if (finding.reason == Reason::kOtherNames) return false;
  return finding.verdict == Verdict::kFail || finding.verdict == Verdict::kMissing;
}

bool is_in_question(const Finding& finding) {
  return finding.reason == Reason::kGuessedPlacement || finding.reason == Reason::kOwnNumbers ||
         finding.reason == Reason::kUnknownLossScale || finding.reason == Reason::kNearUnmeasured ||
         finding.reason == Reason::kPossibleJump || finding.reason == Reason::kOtherNames ||
         finding.reason == Reason::kChangedAfter || finding.reason == Reason::kOtherMicrobatches;
}

bool is_of_step(const Finding& finding) {
  return finding.reason == Reason::kStepCountDiffers || finding.reason == Reason::kOptionsDiffer ||
         finding.reason == Reason::kStepDiffers || finding.reason == Reason::kCopyDiffers;
}

std::optional<double> ratio_of(const Finding& finding) {
  if (!finding.difference || !finding.allowed || finding.reason == Reason::kNotFinite) return std::nullopt;
  double ratio = finding.difference->rel_err() / *finding.allowed;
  for (const JudgedStatistic& judged : finding.statistics) {
    if (judged.statistic == finding.exceeded) ratio = std::fabs(judged.measured) / judged.allowed;
  }
  return std::isfinite(ratio) ? std::optional(ratio) : std::nullopt;
}

bool executes_before(const Finding& a, const Finding& b) {
  if (is_about_ranks(a) || is_about_ranks(b)) {
    return std::tuple(!is_about_ranks(a), a.reason, a.ranks) < std::tuple(!is_about_ranks(b), b.reason, b.ranks);
  }
  using Key = std::tuple<std::int32_t, bool, std::int32_t, Phase, bool, std::uint64_t, const TensorId&, Reason>;
  const auto key = [](const Finding& finding) {
    return Key(finding.id.iteration, finding.reason != Reason::kStepCountDiffers, finding.cycle, phase_of(finding.id),
               finding.only_in_candidate, finding.order, finding.id, finding.reason);
  };
  return key(a) < key(b);
}

}  // namespace ttrace
