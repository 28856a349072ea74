#include <algorithm>
#include <cmath>

#include "base/lookup.h"
#include "diagnose/hypothesis.h"
#include "judge/match.h"
#include "merge/parts.h"
#include "merge/region.h"

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
  if (unchanged == nullptr) {  // of a light iteration: what the one before has left
    TensorId before = after;
    --before.iteration;
    unchanged = find_tensor(suspect.evidence.candidate, before);
  }
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

namespace {

// ||a - b||^2 and ||b||^2 of a part of two tensors, and whether b has two values there.
struct PartDistance {
  double apart = 0, square = 0;
  bool is_varied = false;

  void add(const Values& a, const Values& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      apart += (a[i] - b[i]) * (a[i] - b[i]);
      square += b[i] * b[i];
      is_varied = is_varied || b[i] != b[0];
    }
  }
  // Of values that are all one, as a norm's weights are at first, equality says nothing.
  bool is_within(double bound) const { return is_varied && std::sqrt(apart) <= bound * std::sqrt(square); }
};

// True where the values of the two are apart by no more than `bound`. What the first part says is enough to go on.
bool are_near(const LogicalTensor& a, const LogicalTensor& b, double bound) {
  PartDistance whole;
  const bool is_read = for_each_part(b.shape, [&](const Box& part) {
    whole.add(values_of(region_of(a, part)), values_of(region_of(b, part)));
    return whole.is_within(bound);
  });
  return is_read && whole.is_within(bound);
}

}  // namespace

std::optional<Diagnosis> other_parameter(const LogicalTensor& reference, const LogicalTensor& candidate, double bound,
                                         const Evidence& evidence) {
  const TensorId& id = reference.id;
  const bool has_values = id.kind == Kind::kParam || id.kind == Kind::kParamAfter || id.kind == Kind::kMaster ||
                          id.kind == Kind::kMainGrad || id.kind == Kind::kParamGrad;
  if (!has_values || element_count(reference.shape) < static_cast<std::int64_t>(kFewestValues)) return std::nullopt;
  const auto is_whole = [](const LogicalTensor& tensor) {
    return is_floating(tensor.dtype) && !tensor.rows && !tensor.sketched;
  };
  std::vector<const LogicalTensor*> others;
  for (const auto& [other, tensor] : evidence.reference.tensors) {
    const bool is_beside = other.iteration == id.iteration && other.microbatch == id.microbatch &&
                           other.kind == id.kind && other.name != id.name;
    if (is_beside && is_whole(tensor) && tensor.shape == candidate.shape) others.push_back(&tensor);
  }
  if (!is_whole(candidate)) return std::nullopt;
  std::stable_sort(others.begin(), others.end(),
                   [](const LogicalTensor* a, const LogicalTensor* b) { return a->order < b->order; });
  for (const LogicalTensor* other : others) {
    if (!are_near(candidate, *other, bound)) continue;
    return Diagnosis{Cause::kOtherTensor, 0, fmt::format("it holds the values of {}", printable(other->id.name))};
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
