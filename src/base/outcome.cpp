#include "base/outcome.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

// The tensors of an optimizer's step whose relative error is not noise in low precision.
constexpr std::array kAroundStep = {Kind::kMainGrad, Kind::kParamAfter};

constexpr auto kRunVerdictWords = std::to_array<Word<RunVerdict>>({
    {RunVerdict::kSame, "same", "the candidate computes what the reference computes"},
    {RunVerdict::kDifferent, "different", "something failed or is missing, or a difference has no tolerance"},
    {RunVerdict::kCouldNotLook, "could-not-look", "too little was compared or proved to say either"},
});
static_assert(has_every_enumerator<kRunVerdictWords>());

constexpr auto kCauseWords = std::to_array<Word<Cause>>({
    {Cause::kMissing, "missing", "is not there"},
    {Cause::kNotFinite, "not-finite",
     "holds NaN or Inf (which element first, and whether what it was computed from does)"},
    {Cause::kNeverUpdated, "never-updated",
     "is as it was: the optimizer left it so, or the program a model that no optimizer updates"},
    {Cause::kZero, "zero", "is zero"},
    {Cause::kUnreduced, "unreduced",
     "lies on its ranks as terms of a sum that was never made, or values that were never averaged"},
    {Cause::kUniformFactor, "uniform-factor",
     "is the reference's times one number (which may be the size of an axis, of two, the number of micro-batches, or "
     "one over it)"},
    {Cause::kStale, "stale", "is that of another micro-batch or iteration"},
    {Cause::kOtherTensor, "other-tensor",
     "is another tensor of the micro-batch, another parameter's, or in one rank's part that of another rank"},
    {Cause::kPermutedBlocks, "permuted-blocks",
     "has equal blocks of a dimension in another order (swapped, zigzag, interleaved, ...)"},
    {Cause::kReinterpreted, "reinterpreted",
     "lies in memory as if two dimensions were swapped, in whole or on each rank; or is what a linear's or an "
     "attention's backward makes of an operand read so"},
    {Cause::kMissingContribution, "missing-contribution",
     "is a main gradient that lacks, or has twice, a micro-batch's gradient, or in one rank's part that of another "
     "rank; or a loss over one rank's part alone"},
    {Cause::kStaleOperand, "stale-operand",
     "is a weight's gradient, computed with the input of another module or micro-batch"},
    {Cause::kOtherRows, "other-rows", "has some rows of others"},
    {Cause::kRankFactor, "rank-factor",
     "is the reference's times a number each in the parts of some ranks, be it with one more added, or in "
     "what they made of each other's part of the input"},
    {Cause::kCoarserPrecision, "coarser-precision",
     "is rounded to a narrower dtype than it, or the reference, is stored in"},
    {Cause::kRegion, "region",
     "is wrong in one part of a dimension, in some ranks' parts or in some ranks' copies, and right elsewhere"},
    {Cause::kAccumulatedAgain, "accumulated-again",
     "is a main gradient that was summed over ranks after each micro-batch, with all that was accumulated before"},
    {Cause::kLeftOver, "left-over",
     "is a main gradient that was added onto what an earlier iteration, or a micro-batch that the reference leaves "
     "out, had left in its memory"},
    {Cause::kOtherInitialisation, "other-initialisation",
     "is an initial parameter, like most of them drawn from another seed: `--inject-params` or `--consistent-init`"},
    {Cause::kOptimizerStep, "optimizer-step",
     "is what a wrong step of the optimizer made, or a wrong copy of that; the message says how"},
    {Cause::kMeanOfMeans, "mean-of-means",
     "is a loss, or the gradient of one, that is the mean of means of ranks or of micro-batches, of which some "
     "hold more elements, labels that count, or weight, than others"},
    {Cause::kConfiguredOtherwise, "configured-otherwise",
     "is computed by a module that is configured otherwise than the reference's (eps, p, scale, ...)"},
    {Cause::kDrawnOtherwise, "drawn-otherwise",
     "comes after random numbers that the reference does not draw there, or that are others than in the first "
     "forward or on ranks whose copies must be equal"},
    {Cause::kOtherLoss, "other-loss",
     "is a loss, or the gradient of one, that is made otherwise of the same scores: divided by another "
     "number, of other labels or rows that count or with other weights of them, at another temperature, "
     "with another part of a further loss, of more scores, or without what a softmax's backward takes off"},
    {Cause::kOtherNorm, "other-norm",
     "is a norm of gradients that lacks some of them, counts some twice, or is another norm of all"},
    {Cause::kOtherGroup, "other-group",
     "is a main gradient that was reduced along another axis than its own, over other parameters of its kind"},
    {Cause::kOwnSamples, "own-samples",
     "is made by each rank of its own samples, or its own part of a row, alone, where the reference takes all: "
     "standardised by their mean and deviation, normalised, or a loss that is a ratio of sums"},
    {Cause::kOtherAverage, "other-average",
     "is a moving average that follows its parameter otherwise: as that was before its step, or by another decay; or "
     "running statistics that follow others of the same samples"},
    {Cause::kOtherFunction, "other-function",
     "is a function of the reference's value, or the reference's one of it: a softmax, an activation, a logarithm that "
     "is applied once more or once less"},
});
static_assert(has_every_enumerator<kCauseWords>());

constexpr auto kStandingWords = std::to_array<Word<Standing>>({
    {Standing::kConfirmed, "confirmed", "the module is wrong by itself"},
    {Standing::kFound, "found", "wrong by itself, and before in the wake of another"},
    {Standing::kMoved, "moved", "right by itself, its error came in"},
});
static_assert(has_every_enumerator<kStandingWords>());

// True where at least half of what was compared proves something. What is zero by design does not count, such as what a
// recurrent network begins with, and of buffers neither does what each rank keeps for itself.
bool is_proved(Kind kind, const KindProof& proof) {
  const auto count = [&](std::string_view reason) {
    const auto found = proof.others.find(std::string(reason));
    return found == proof.others.end() ? 0 : found->second;
  };
  if (is_buffer_kind(kind)) {
    return proof.proved >= count(name_of(Reason::kNoise)) + count(kByOverride) + count(kByWaiver);
  }
  std::int64_t compared = proof.compared;
  const bool is_state = is_optimizer_state(kind);
  if (const auto zero = proof.others.find(std::string(name_of(Reason::kAllZero)));
      (kind == Kind::kParam || kind == Kind::kInput || is_state) && zero != proof.others.end()) {
    compared -= zero->second;
  }
  return (proof.proved > 0 || is_state) && 2 * proof.proved >= compared;
}

// True where the kinds before and after the optimizer's step are proved, so that its own difference need not be.
bool is_step_enclosed(const Proofs& proofs) {
  return std::all_of(kAroundStep.begin(), kAroundStep.end(), [&](Kind kind) {
    const auto proof = proofs.find(kind);
    return proof != proofs.end() && is_proved(kind, proof->second);
  });
}

// True where all scalars that prove nothing are noise, as the loss of advantages that are centred, whose gradients are
// proved: what such a loss does is in these.
bool is_loss_of_nothing(const Proofs& proofs) {
  const KindProof& scalars = proofs.at(Kind::kScalar);
  const auto noise = scalars.others.find(std::string(name_of(Reason::kNoise)));
  const auto gradients = proofs.find(Kind::kMainGrad);
  return noise != scalars.others.end() && noise->second == scalars.compared - scalars.proved &&
         gradients != proofs.end() && is_proved(Kind::kMainGrad, gradients->second);
}

// True for a rank that left no file, or did not finish.
bool is_of_absent_rank(const Finding& finding) {
  return finding.reason == Reason::kMissingRank || finding.reason == Reason::kIncompleteRank;
}

}  // namespace

std::set<Kind> unproved_kinds(const Proofs& proofs) {
  std::set<Kind> unproved;
  for (const auto& [kind, proof] : proofs) {
    if (proof.compared == 0 || is_proved(kind, proof)) continue;
    if (kind == Kind::kParamDelta && is_step_enclosed(proofs)) continue;
    if (kind == Kind::kScalar && is_loss_of_nothing(proofs)) continue;
    unproved.insert(kind);
  }
  return unproved;
}

Vocabulary<RunVerdict> vocabulary_of(RunVerdict) { return {"RunVerdict", kRunVerdictWords}; }
Vocabulary<Cause> vocabulary_of(Cause) { return {"Cause", kCauseWords}; }
Vocabulary<Standing> vocabulary_of(Standing) { return {"Standing", kStandingWords}; }

std::string_view name_of(RunVerdict verdict) { return word_in<RunVerdict>(kRunVerdictWords, verdict); }
std::string_view name_of(Cause cause) { return word_in<Cause>(kCauseWords, cause); }
std::string_view name_of(Standing standing) { return word_in<Standing>(kStandingWords, standing); }

void Counts::add(Verdict verdict) {
  pass += verdict == Verdict::kPass;
  fail += verdict == Verdict::kFail;
  untrusted += verdict == Verdict::kUntrusted;
  missing += verdict == Verdict::kMissing;
  not_seen += verdict == Verdict::kNotSeen;
  compared = pass + fail + untrusted;
}

RunVerdict Report::verdict() const {
  const auto in_question = std::count_if(findings.begin(), findings.end(), is_in_question);
  const bool failed =
      std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.verdict == Verdict::kFail; });
  const bool lacks_ranks = std::any_of(findings.begin(), findings.end(), is_of_absent_rank);
  const auto missing_in_question = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return is_in_question(finding) && finding.verdict == Verdict::kMissing;
  });
  const bool lacks_tensors = totals.counts.missing > missing_in_question || first_wrong() != nullptr;
  const bool wrong = totals.counts.fail > 0 || failed || (lacks_tensors && !lacks_ranks) || lacks_tolerance() ||
                     (strict && totals.counts.untrusted > in_question);
  if (wrong) return RunVerdict::kDifferent;
  const bool is_not_strict = totals.counts.not_seen > 0 || !explanation.configured.empty();
  const bool open = lacks_ranks || in_question > 0 || totals.counts.pass == 0 || lacks_proof() ||
                    !unseen_kinds().empty() || (strict && is_not_strict) || runs.failed.has_value();
  return open ? RunVerdict::kCouldNotLook : RunVerdict::kSame;
}

bool Report::lacks_proof() const {
  if (!proof.by_kind) return false;
  const bool any = std::any_of(proof.by_kind->begin(), proof.by_kind->end(),
                               [](const auto& item) { return item.second.proved > 0; });
  return !any || lost() != nullptr || !unproved_kinds(*proof.by_kind).empty() || proof.zero_gradients ||
         !proof.unproved_steps.empty() || proof.unstepped;
}

const Finding* Report::lost() const {
  if (!proof.by_kind) return nullptr;
  const auto found = std::find_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.reason == Reason::kEmpty && finding.floating && is_loss(finding.id);
  });
  return found == findings.end() ? nullptr : &*found;
}

std::set<Kind> Report::unseen_kinds() const {
  std::set<Kind> unseen, seen;
  for (const Finding& finding : findings) {
    const bool was_to_be_seen =
        finding.reason == Reason::kNotSeenInCandidate || finding.reason == Reason::kNotSeenInReference;
    if (was_to_be_seen) unseen.insert(finding.id.kind);
  }
  for (const auto& [tensor, verdicts] : totals.by_name) {
    if (verdicts.pass > 0) seen.insert(tensor.second);
  }
  // A loss is known by the gradients that it gives.
  const bool are_gradients_seen = seen.contains(Kind::kGradOutput);
  std::erase_if(unseen,
                [&](Kind kind) { return seen.contains(kind) || (kind == Kind::kScalar && are_gradients_seen); });
  return unseen;
}

bool Report::lacks_tolerance() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.reason == Reason::kNoTolerance; });
}

const Finding* Report::first_wrong() const {
  const auto found = std::find_if(findings.begin(), findings.end(), is_wrong);
  return found == findings.end() ? nullptr : &*found;
}

}  // namespace ttrace
