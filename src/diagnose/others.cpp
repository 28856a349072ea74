#include <algorithm>

#include "base/lookup.h"
#include "diagnose/hypothesis.h"
#include "judge/match.h"

namespace ttrace {
namespace {

// True where the reference's value of `other`, the same tensor at another time, differs from the suspect's. A tensor
// that never changes cannot be stale.
bool differs_at(const TensorId& other, const Suspect& suspect) {
  const LogicalTensor* value = counterpart(suspect.evidence.reference, other);
  return value != nullptr && is_comparable(*value, suspect.reference) &&
         relative_distance(values_of(*value), suspect.reference_values) > suspect.bound;
}

}  // namespace

bool is_comparable(const LogicalTensor& a, const LogicalTensor& b) {
  return a.shape == b.shape && is_floating(a.dtype) && is_small(a) && is_small(b);
}

std::string describe_time(const TensorId& id) {
  return id.microbatch == kNoMicrobatch ? fmt::format("iteration {}", id.iteration)
                                        : fmt::format("iteration {}, micro-batch {}", id.iteration, id.microbatch);
}

std::optional<Diagnosis> zero(const Finding& finding) {
  if (finding.difference->candidate_square > 0 || finding.difference->reference_square == 0) return std::nullopt;
  if (finding.id.kind == Kind::kParamDelta) {
    return Diagnosis{Cause::kNeverUpdated, 0, "the optimizer changed nothing: every element is zero"};
  }
  return Diagnosis{Cause::kZero, 0, "every element is zero"};
}

std::optional<Diagnosis> bias_alone(const Suspect& suspect) {
  if (suspect.finding.id.kind != Kind::kOutput || suspect.reference.shape.empty()) return std::nullopt;
  const Values biases = added_biases(suspect);
  if (norm_of(biases) == 0) return std::nullopt;
  return suspect.explained_by(Cause::kZero, biases, "every row is the bias alone: what the bias is added to is zero");
}

std::optional<Diagnosis> never_updated(const Suspect& suspect) {
  const TensorId& after = suspect.finding.id;
  if (after.kind != Kind::kParamAfter) return std::nullopt;
  const LogicalTensor* unchanged = find_tensor(suspect.evidence.candidate, after.with_kind(Kind::kParam));
  if (unchanged == nullptr || !is_comparable(*unchanged, suspect.candidate)) return std::nullopt;
  return suspect.explained_by(Cause::kNeverUpdated, values_of(*unchanged),
                              "the parameter is what it was before the step");
}

std::optional<Diagnosis> stale(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  for (const Alignment* side : {&suspect.evidence.reference, &suspect.evidence.candidate}) {
    for (const auto& [other, tensor] : side->tensors) {
      const bool is_other_time = other.iteration != id.iteration || other.microbatch != id.microbatch;
      if (other.kind != id.kind || other.name != id.name || !is_other_time || !is_comparable(tensor, suspect.reference))
        continue;
      if (other.iteration > id.iteration) continue;
      const std::string what = fmt::format("it is the value of {}", describe_time(other));
      auto found = suspect.explained_by(Cause::kStale, values_of(tensor), what);
      if (found && differs_at(other, suspect)) return found;
    }
  }
  return std::nullopt;
}

std::optional<Diagnosis> other_tensor(const Suspect& suspect) {
  const TensorId& id = suspect.finding.id;
  const bool is_forward = id.kind == Kind::kInput || id.kind == Kind::kOutput;
  std::vector<const LogicalTensor*> tensors;  // sorted by execution: of several with one value, the first is named
  for (const auto& [other, tensor] : suspect.evidence.reference.tensors) {
    const bool same_time = other.iteration == id.iteration && other.microbatch == id.microbatch;
    const bool same_direction = is_forward ? other.kind == Kind::kInput || other.kind == Kind::kOutput
                                           : other.kind == Kind::kGradInput || other.kind == Kind::kGradOutput;
    if (same_time && same_direction && is_comparable(tensor, suspect.reference)) tensors.push_back(&tensor);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const LogicalTensor* a, const LogicalTensor* b) { return a->order < b->order; });
  for (const LogicalTensor* tensor : tensors) {
    const std::string what = fmt::format("it is the {} of {}", name_of(tensor->id.kind), printable(tensor->id.name));
    if (auto found = suspect.explained_by(Cause::kOtherTensor, values_of(*tensor), what)) return found;
  }
  return std::nullopt;
}

}  // namespace ttrace
