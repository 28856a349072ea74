#include "base/finding.h"

#include <array>
#include <cmath>
#include <tuple>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 5> kVerdictNames = {"pass", "fail", "untrusted", "missing", "not-seen"};
constexpr std::array<std::string_view, 33> kReasonNames = {
    "none",
    "options-differ",
    "step-differs",
    "copy-differs",
    "exceeds-tolerance",
    "not-finite",
    "integer-differs",
    "replicas-disagree",
    "recompute-differs",
    "shape-mismatch",
    "dtype-mismatch",
    "overlap",
    "duplicate-tensor",
    "duplicate-rank",
    "routing-differs",
    "product-differs",
    "lookup-differs",
    "sum-differs",
    "missing-in-candidate",
    "missing-in-reference",
    "omission",
    "missing-rank",
    "incomplete-rank",
    "not-seen-in-candidate",
    "not-seen-in-reference",
    "not-recorded-in-candidate",
    "not-recorded-in-reference",
    "no-tolerance",
    "all-zero",
    "noise",
    "empty",
    "not-checkable",
    "re-routed",
};
constexpr std::array<std::string_view, 6> kStatisticNames = {"rel_err", "scale", "row", "element", "coherence", "cell"};
static_assert(kReasonNames.size() == static_cast<std::size_t>(Reason::kRerouted) + 1);
static_assert(kVerdictNames.size() == static_cast<std::size_t>(Verdict::kNotSeen) + 1);

// The phases of one iteration, in the order in which the results of one enter the next: an error in one phase explains
// errors in later ones.
enum class Phase : std::uint8_t {
  kParameters,
  kForward,
  kLoss,
  kRecompute,  // runs within backward, before the gradients that it feeds
  kBackward,
  kParamGrad,
  kMainGrad,
  kStepScalar,
  kDelta,
  kAfter,
};

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
      return Phase::kParameters;
    case Kind::kParamGrad:
      return Phase::kParamGrad;
    case Kind::kMainGrad:
      return Phase::kMainGrad;
    case Kind::kStepGrad:
    case Kind::kParamDelta:
      return Phase::kDelta;
    case Kind::kParamAfter:
      return Phase::kAfter;
    case Kind::kScalar:
      break;
  }
  return is_loss(id) ? Phase::kLoss : Phase::kStepScalar;
}

bool is_about_ranks(const Finding& finding) { return finding.id.name.empty(); }

}  // namespace

std::string_view name_of(Verdict verdict) { return kVerdictNames[static_cast<std::size_t>(verdict)]; }

std::string_view name_of(Reason reason) { return kReasonNames[static_cast<std::size_t>(reason)]; }

std::string_view name_of(Statistic statistic) { return kStatisticNames[static_cast<std::size_t>(statistic)]; }

bool is_loss(const TensorId& id) {
  return id.kind == Kind::kScalar && (id.microbatch != kNoMicrobatch || TensorName(id.name).path.ends_with("loss"));
}

bool is_wrong(const Finding& finding) {
  return finding.verdict == Verdict::kFail || finding.verdict == Verdict::kMissing;
}

bool is_of_step(const Finding& finding) {
  return finding.reason == Reason::kOptionsDiffer || finding.reason == Reason::kStepDiffers ||
         finding.reason == Reason::kCopyDiffers;
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
  using Key = std::tuple<std::int32_t, Phase, bool, std::uint64_t, const TensorId&, Reason>;
  const auto key = [](const Finding& finding) {
    return Key(finding.id.iteration, phase_of(finding.id), finding.only_in_candidate, finding.order, finding.id,
               finding.reason);
  };
  return key(a) < key(b);
}

}  // namespace ttrace
