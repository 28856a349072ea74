#include "diagnose/left_overs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/lookup.h"
#include "diagnose/hypothesis.h"
#include "judge/match.h"

namespace ttrace {
namespace {

// A main gradient that is a root: what the candidate made of it, the reference's, and what was left.
struct AddedOnto {
  std::size_t root = 0;
  double bound = 0;  // what it may differ by
  Values wrong, right, left;
  const LogicalTensor* before = nullptr;
};

// How often all of them hold what was left, and the reference's.
struct TimesOfAll {
  double left = 0, own = 1;
};

bool is_open_to_left_overs(const std::optional<Diagnosis>& diagnosis) {
  return !diagnosis || diagnosis->cause == Cause::kRegion || diagnosis->cause == Cause::kLeftOver;
}

std::optional<AddedOnto> added_onto(std::size_t root, const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr || !is_comparable(*reference, *candidate)) return std::nullopt;
  const LogicalTensor* before = find_left_over(*candidate, evidence.candidate);
  if (before == nullptr || finding.reason == Reason::kReplicasDisagree) return std::nullopt;
  AddedOnto gradient{root,
                     std::max(finding.allowed.value_or(0), epsilon_of(candidate->dtype)),
                     values_of(*candidate),
                     values_of(*reference),
                     values_of(*before),
                     before};
  const bool is_finite = std::isfinite(norm_of(gradient.wrong)) && std::isfinite(norm_of(gradient.right)) &&
                         std::isfinite(norm_of(gradient.left));
  return is_finite ? std::optional(std::move(gradient)) : std::nullopt;
}

// By least squares over all of them; nothing where what was left and the reference's are alike, or it is nothing.
std::optional<TimesOfAll> fit_times_of_all(const std::vector<AddedOnto>& gradients, bool is_scaled) {
  constexpr double kAlikeAngle = 1e-6;  // square of the sine between them
  double ll = 0, lr = 0, rr = 0, lw = 0, rw = 0;
  for (const AddedOnto& gradient : gradients) {
    ll += dot_of(gradient.left, gradient.left);
    lr += dot_of(gradient.left, gradient.right);
    rr += dot_of(gradient.right, gradient.right);
    lw += dot_of(gradient.left, gradient.wrong);
    rw += dot_of(gradient.right, gradient.wrong);
  }
  if (!(ll > 0)) return std::nullopt;
  if (!is_scaled) return TimesOfAll{(lw - lr) / ll, 1};
  const double determinant = ll * rr - lr * lr;
  if (!(determinant > kAlikeAngle * ll * rr)) return std::nullopt;
  return TimesOfAll{(lw * rr - rw * lr) / determinant, (rw * ll - lw * lr) / determinant};
}

double distance_of(const AddedOnto& gradient, const TimesOfAll& times) {
  Values predicted = gradient.right;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    predicted[i] = times.left * gradient.left[i] + times.own * gradient.right[i];
  }
  return relative_distance(gradient.wrong, predicted);
}

// The residual of the gradient as these times make it, where they explain what the reference's alone, as it is or times the
// number that comes nearest, does not. Few values must be met as nearly as a single number must.
std::optional<double> residual_of(const AddedOnto& gradient, const TimesOfAll& times) {
  const double right = dot_of(gradient.right, gradient.right);
  const double nearest = right > 0 ? dot_of(gradient.wrong, gradient.right) / right : 0;
  const double residual = distance_of(gradient, times);
  const double error = std::min(distance_of(gradient, {0, 1}), distance_of(gradient, {0, nearest}));
  const bool has_few = gradient.right.size() < kFewestValues;
  const double most = error * kLargestShareLeft / static_cast<double>(has_few ? kFewestValues : 1);
  return residual <= std::min(gradient.bound, most) ? std::optional(residual) : std::nullopt;
}

void explain_all(const std::vector<AddedOnto>& gradients, std::vector<std::optional<Diagnosis>>& diagnoses) {
  for (const bool is_scaled : {false, true}) {
    const std::optional<TimesOfAll> times = fit_times_of_all(gradients, is_scaled);
    if (!times || !(times->left > 0) || !(times->own > 0)) continue;
    bool are_met = false;
    for (const AddedOnto& gradient : gradients) {
      const std::optional<double> residual = residual_of(gradient, *times);
      if (!residual) continue;
      are_met = true;
      diagnoses[gradient.root] = Diagnosis{
          Cause::kLeftOver, *residual,
          fmt::format("{} {}", describe_left_over(*gradient.before, times->left, times->own), kIsThereZeroGrad),
          describe_gradient_of(*gradient.before)};
    }
    if (are_met) return;
  }
}

}  // namespace

const LogicalTensor* find_left_over(const LogicalTensor& gradient, const Alignment& candidate) {
  TensorId id = gradient.id;
  --id.iteration;
  const LogicalTensor* before = find_tensor(candidate, id);
  return before != nullptr && is_comparable(*before, gradient) ? before : nullptr;
}

std::string describe_gradient_of(const LogicalTensor& before) {
  return fmt::format("the gradient of iteration {}", before.id.iteration);
}

std::string describe_left_over(const LogicalTensor& before, double left, double own) {
  constexpr double kNearOnce = 1e-3;  // what four digits show as 1
  const auto often = [](double times, const std::string& what) {
    return std::abs(times - 1) < kNearOnce ? what : fmt::format("{:.4g} times {}", times, what);
  };
  const std::string beside =
      std::abs(own - 1) < kNearOnce ? "" : fmt::format(", beside {}", often(own, "the reference's"));
  return fmt::format("{} is still in it{}", often(left, describe_gradient_of(before)), beside);
}

void add_left_overs(const Report& report, const Evidence& evidence, std::vector<std::optional<Diagnosis>>& diagnoses) {
  std::map<std::int32_t, std::vector<AddedOnto>> by_iteration;
  for (std::size_t i = 0; i < diagnoses.size(); ++i) {
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    if (finding.id.kind != Kind::kMainGrad || !is_open_to_left_overs(diagnoses[i])) continue;
    if (auto gradient = added_onto(i, finding, evidence)) {
      by_iteration[finding.id.iteration].push_back(std::move(*gradient));
    }
  }
  for (const auto& [iteration, gradients] : by_iteration) {
    std::size_t values = 0;
    for (const AddedOnto& gradient : gradients) values += gradient.right.size();
    if (gradients.size() > 1 && values >= kFewestValues) explain_all(gradients, diagnoses);
  }
}

}  // namespace ttrace
