#include "base/outcome.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

// Of the tensors of an optimizer's step, those whose relative error is not noise in low precision.
constexpr std::array kAroundStep = {Kind::kMainGrad, Kind::kParamAfter};

// In the order of the enumerators.
constexpr std::array<std::string_view, 3> kRunVerdictNames = {"same", "different", "could-not-look"};
constexpr std::array<std::string_view, 21> kCauseNames = {
    "missing",
    "not-finite",
    "never-updated",
    "zero",
    "unreduced",
    "uniform-factor",
    "stale",
    "other-tensor",
    "permuted-blocks",
    "reinterpreted",
    "missing-contribution",
    "stale-operand",
    "other-rows",
    "rank-factor",
    "coarser-precision",
    "region",
    "accumulated-again",
    "left-over",
    "other-initialisation",
    "optimizer-step",
    "mean-of-means",
};
constexpr std::array<std::string_view, 3> kStandingNames = {"confirmed", "found", "moved"};
static_assert(kRunVerdictNames.size() == static_cast<std::size_t>(RunVerdict::kCouldNotLook) + 1);
static_assert(kCauseNames.size() == static_cast<std::size_t>(Cause::kMeanOfMeans) + 1);
static_assert(kStandingNames.size() == static_cast<std::size_t>(Standing::kMoved) + 1);

// True where at least half of what was compared proves something. What is zero by design does not count.
bool is_proved(Kind kind, const Proof& proof) {
  std::int64_t compared = proof.compared;
  const bool is_state = is_optimizer_state(kind);
  if (const auto zero = proof.others.find(std::string(name_of(Reason::kAllZero)));
      (kind == Kind::kParam || is_state) && zero != proof.others.end()) {
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

}  // namespace

std::set<Kind> unproved_kinds(const Proofs& proofs) {
  std::set<Kind> unproved;
  for (const auto& [kind, proof] : proofs) {
    if (proof.compared == 0 || is_proved(kind, proof)) continue;
    if (kind == Kind::kParamDelta && is_step_enclosed(proofs)) continue;
    unproved.insert(kind);
  }
  return unproved;
}

std::string_view name_of(RunVerdict verdict) { return kRunVerdictNames[static_cast<std::size_t>(verdict)]; }

std::string_view name_of(Cause cause) { return kCauseNames[static_cast<std::size_t>(cause)]; }

std::string_view name_of(Standing standing) { return kStandingNames[static_cast<std::size_t>(standing)]; }

void Counts::add(Verdict verdict) {
  pass += verdict == Verdict::kPass;
  fail += verdict == Verdict::kFail;
  untrusted += verdict == Verdict::kUntrusted;
  missing += verdict == Verdict::kMissing;
  not_seen += verdict == Verdict::kNotSeen;
  compared = pass + fail + untrusted;
}

RunVerdict Report::verdict() const {
  const bool wrong = counts.fail > 0 || counts.missing > 0 || root_cause() != nullptr || lacks_tolerance() ||
                     (strict && counts.untrusted > 0);
  if (wrong) return RunVerdict::kDifferent;
  const bool open = counts.pass == 0 || lacks_proof() || !unseen_kinds().empty() || (strict && counts.not_seen > 0);
  return open ? RunVerdict::kCouldNotLook : RunVerdict::kSame;
}

bool Report::lacks_proof() const {
  if (!proofs) return false;
  const bool any = std::any_of(proofs->begin(), proofs->end(), [](const auto& item) { return item.second.proved > 0; });
  return !any || lost() != nullptr || !unproved_kinds(*proofs).empty();
}

const Finding* Report::lost() const {
  if (!proofs) return nullptr;
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
  for (const auto& [tensor, verdicts] : by_name) {
    if (verdicts.pass > 0) seen.insert(tensor.second);
  }
  std::erase_if(unseen, [&](Kind kind) { return seen.contains(kind); });
  return unseen;
}

bool Report::lacks_tolerance() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.reason == Reason::kNoTolerance; });
}

const Finding* Report::root_cause() const {
  const auto found = std::find_if(findings.begin(), findings.end(), is_wrong);
  return found == findings.end() ? nullptr : &*found;
}

}  // namespace ttrace
