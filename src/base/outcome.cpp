#include "ttrace/outcome.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 3> kRunVerdictNames = {"same", "different", "could-not-look"};
constexpr std::array<std::string_view, 19> kCauseNames = {
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
    "other-initialisation",
    "optimizer-step",
};
constexpr std::array<std::string_view, 3> kStandingNames = {"confirmed", "found", "moved"};
static_assert(kRunVerdictNames.size() == static_cast<std::size_t>(RunVerdict::kCouldNotLook) + 1);
static_assert(kCauseNames.size() == static_cast<std::size_t>(Cause::kOptimizerStep) + 1);
static_assert(kStandingNames.size() == static_cast<std::size_t>(Standing::kMoved) + 1);

}  // namespace

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
  const bool open = !unseen_kinds().empty() || (strict && counts.not_seen > 0);
  if (wrong || (counts.pass == 0 && !open)) return RunVerdict::kDifferent;
  return open ? RunVerdict::kCouldNotLook : RunVerdict::kSame;
}

std::set<Kind> Report::unseen_kinds() const {
  std::set<Kind> unseen, seen;
  for (const auto& [tensor, verdicts] : by_name) {
    if (verdicts.not_seen > 0) unseen.insert(tensor.second);
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
