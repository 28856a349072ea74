#include "diagnose/losses_by_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/lookup.h"
#include "diagnose/hypothesis.h"
#include "judge/match.h"

namespace ttrace {
namespace {

bool is_gradient_of_activation(Kind kind) { return kind == Kind::kGradOutput || kind == Kind::kGradInput; }

bool is_of_microbatch(const Finding& finding, const TensorId& loss) {
  return finding.id.iteration == loss.iteration && finding.id.microbatch == loss.microbatch;
}

// The first wrong gradient of the loss's micro-batch that has enough numbers to tell; null where there is none.
const Finding* first_gradient(const Report& report, const TensorId& loss) {
  const auto found = std::find_if(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
    const bool is_gradient = is_gradient_of_activation(finding.id.kind) || finding.id.kind == Kind::kParamGrad;
    return is_gradient && is_of_microbatch(finding, loss) && is_wrong(finding) && finding.difference &&
           finding.difference->elements >= static_cast<std::int64_t>(kFewestValues);
  });
  return found == report.findings.end() ? nullptr : &*found;
}

// Counts the gradients of the loss's micro-batch, if each is the reference's times the factor; 0 where one is not.
std::int64_t count_multiples(const Report& report, const TensorId& loss, double factor) {
  constexpr double kNearMultiple = 1e-3;
  std::int64_t count = 0;
  const auto is_multiple = [&](const Finding& finding) {
    const double bound = std::max(kNearMultiple, finding.allowed.value_or(0));
    return finding.difference->uniform_factor_residual() <= bound &&
           std::abs(finding.difference->uniform_factor() - factor) <= bound * std::abs(factor);
  };
  for (const std::vector<Finding>* findings : {&report.findings, &report.passed}) {
    for (const Finding& finding : *findings) {
      const bool is_gradient = is_gradient_of_activation(finding.id.kind) || finding.id.kind == Kind::kParamGrad;
      if (!is_gradient || !is_of_microbatch(finding, loss) || !finding.difference || !finding.floating) continue;
      if (finding.difference->reference_square == 0 && finding.difference->candidate_square == 0) continue;
      if (!is_multiple(finding)) return 0;
      ++count;
    }
  }
  return count;
}

// A number that a module returns, and how often the loss has it: the gradient of the loss with respect to it.
struct Term {
  double value = 0, times = 0;
};

std::optional<Term> term_of(const Alignment& side, const TensorId& gradient) {
  const LogicalTensor* times = find_tensor(side, gradient);
  const LogicalTensor* value = find_tensor(side, gradient.with_kind(Kind::kOutput));
  for (const LogicalTensor* tensor : {times, value}) {
    const bool is_number =
        tensor != nullptr && is_small(*tensor) && is_floating(tensor->dtype) && element_count(tensor->shape) == 1;
    if (!is_number) return std::nullopt;
  }
  return Term{values_of(*value)[0], values_of(*times)[0]};
}

// The loss is the sum of its terms, each as often as its gradient says. So what a term adds in the candidate tells what the
// loss is there; one number is near another by chance more often than many are, and so it must be near to within a small
// share of the error.
std::optional<Diagnosis> term_that_counts_otherwise(const Finding& finding, const Evidence& evidence) {
  const LogicalTensor* reference = counterpart(evidence.reference, finding.id);
  const LogicalTensor* candidate = find_tensor(evidence.candidate, finding.id);
  if (reference == nullptr || candidate == nullptr || !is_comparable(*reference, *candidate) ||
      element_count(reference->shape) != 1) {
    return std::nullopt;
  }
  const double right = values_of(*reference)[0], wrong = values_of(*candidate)[0];
  const double most = std::abs(wrong - right) * kLargestShareLeft / static_cast<double>(kFewestValues);
  const LogicalTensor* first = nullptr;  // in order of execution: of a number that is handed on
  Term of_reference, of_candidate;
  for (const auto& [id, tensor] : evidence.reference.tensors) {
    if (id.kind != Kind::kGradOutput || id.iteration != finding.id.iteration ||
        id.microbatch != finding.id.microbatch || id.name == finding.id.name) {
      continue;
    }
    const auto one = term_of(evidence.reference, id), other = term_of(evidence.candidate, id);
    if (!one || !other || one->times == other->times) continue;
    const double predicted = right + other->times * other->value - one->times * one->value;
    const LogicalTensor* value = find_tensor(evidence.reference, id.with_kind(Kind::kOutput));
    if (std::abs(predicted - wrong) > most || (first != nullptr && first->order <= value->order)) continue;
    first = value;
    of_reference = *one;
    of_candidate = *other;
  }
  if (first == nullptr) return std::nullopt;
  const std::string times = of_reference.times == 0 ? "and is no part of the reference's"
                                                    : fmt::format("{:.4g} times as often as in the reference",
                                                                  of_candidate.times / of_reference.times);
  return Diagnosis{
      Cause::kOtherLoss, 0,
      fmt::format("what {} returns is in it {:.4g} times, {}", printable(first->id.name), of_candidate.times, times)};
}

std::optional<Diagnosis> by_first_gradient(const Finding& loss, const Report& report, const Evidence& evidence) {
  const Finding* gradient = first_gradient(report, loss.id);
  if (gradient == nullptr) return std::nullopt;
  auto found = diagnose_gradient_of_loss(*gradient, loss, evidence);
  if (!found) return std::nullopt;
  const std::string where = fmt::format("{}, {}", printable(gradient->id.name), name_of(gradient->id.kind));
  const double factor = gradient->difference->uniform_factor();
  const std::int64_t multiples = found->cause == Cause::kUniformFactor ? count_multiples(report, loss.id, factor) : 0;
  if (multiples > 1) {
    found->what = fmt::format("all {} gradients of its micro-batch are {:.4g} times the reference's; of {}, {}",
                              multiples, factor, where, found->what);
  } else {
    found->what = fmt::format("the first gradient of its micro-batch that differs, {}: {}", where, found->what);
  }
  found->group.clear();
  found->placement.reset();
  return found;
}

}  // namespace

void add_gradients_of_losses(const Report& report, const Evidence& evidence,
                             std::vector<std::optional<Diagnosis>>& diagnoses) {
  if (evidence.rewritten) return;
  for (std::size_t i = 0; i < diagnoses.size(); ++i) {
    const Finding& finding = report.findings[report.explanation.roots[i].finding];
    const bool is_number = finding.difference && finding.difference->elements == 1 &&
                           finding.id.microbatch != kNoMicrobatch &&
                           (is_loss(finding.id) || finding.id.kind == Kind::kOutput);
    const bool is_open = !diagnoses[i] || diagnoses[i]->cause == Cause::kRegion;
    if (!is_number || !is_open || finding.reason != Reason::kExceedsTolerance) continue;
    if (auto found = term_that_counts_otherwise(finding, evidence)) {
      diagnoses[i] = std::move(found);
    } else if (auto shown = by_first_gradient(finding, report, evidence)) {
      diagnoses[i] = std::move(shown);
    }
  }
}

}  // namespace ttrace
