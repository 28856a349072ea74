#include "diagnose/light_jumps.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

#include "base/lookup.h"
#include "compare/few_elements.h"
#include "judge/jumps.h"
#include "merge/values.h"
#include "tolerance/tolerance.h"

namespace ttrace {
namespace {

constexpr std::int64_t kLeastChannels = 8;  // of fewer, one is no small part

// True where all of the error, but what is allowed, lies at one place of the dimension.
bool is_in_one_channel(const Values& errors, double rest_allowed, const Shape& shape, std::size_t dim) {
  const auto channels = static_cast<std::size_t>(shape[dim]);
  const auto inside =
      static_cast<std::size_t>(element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end())));
  Values squares(channels);
  double sum = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    squares[i / inside % channels] += errors[i] * errors[i];
    sum += errors[i] * errors[i];
  }
  return sum - *std::max_element(squares.begin(), squares.end()) <= rest_allowed * rest_allowed;
}

bool differs_in_one_channel(const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* reference = find_tensor(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr || reference->shape != candidate->shape) return false;
  if (!has_whole_values(*reference) || !has_whole_values(*candidate)) return false;
  const Values right = values_of(*reference), wrong = values_of(*candidate);
  Values errors(right.size());
  std::transform(wrong.begin(), wrong.end(), right.begin(), errors.begin(), std::minus());
  const double allowed = *finding.allowed * norm_of(right);
  const Shape& shape = reference->shape;
  for (std::size_t dim = 0; dim < std::min<std::size_t>(shape.size(), 2); ++dim) {
    if (shape[dim] >= kLeastChannels && is_in_one_channel(errors, allowed, shape, dim)) return true;
  }
  return false;
}

bool is_step_kind(Kind kind) { return kind == Kind::kParamDelta || kind == Kind::kParamAfter; }

}  // namespace

std::optional<std::size_t> find_light_jump(const Report& report, const std::vector<bool>& is_open,
                                           const Evidence& evidence) {
  const auto has_other_cause = [](const RootCause& root) {
    return root.diagnosis && root.diagnosis != Cause::kRegion && root.diagnosis != Cause::kOtherRows;
  };
  if (std::ranges::any_of(report.explanation.roots, has_other_cause)) return std::nullopt;
  std::vector<std::size_t> wrong;
  std::int32_t first = std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    const Finding& finding = report.findings[i];
    if (is_open[i] || !is_wrong(finding)) continue;
    const bool is_beyond = finding.reason == Reason::kExceedsTolerance && finding.difference && finding.allowed;
    if (!finding.light || !is_beyond) return std::nullopt;
    wrong.push_back(i);
    first = std::min(first, finding.id.iteration);
  }
  double largest = 0;
  std::optional<std::size_t> jump;
  for (const std::size_t i : wrong) {
    const Finding& finding = report.findings[i];
    if (finding.id.iteration != first || finding.id.kind != Kind::kMainGrad) continue;
    largest = std::max(largest, finding.difference->rel_err());
    if (!jump && differs_in_one_channel(finding, evidence)) jump = i;
  }
  if (!jump || largest > kLargestJump) return std::nullopt;
  const bool are_behind = std::ranges::all_of(wrong, [&](std::size_t i) {
    const Finding& finding = report.findings[i];
    const double error = finding.difference->rel_err();
    if (is_step_kind(finding.id.kind)) return error <= kLargestJump;
    const bool may_differ = finding.id.iteration > first || finding.id.kind == Kind::kMainGrad ||
                            is_gradient_norm({finding.id.kind, finding.id.name});
    return may_differ && error <= kReachOfJump * largest;
  });
  return are_behind ? jump : std::nullopt;
}

}  // namespace ttrace
