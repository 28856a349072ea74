#include "judge/cycles.h"

#include <algorithm>
#include <utility>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// True for what a forward, once it has begun again, comes after.
bool ends_forward(Phase phase) {
  return phase == Phase::kBackward || phase == Phase::kParamGrad || phase == Phase::kMainGrad ||
         phase == Phase::kDelta || phase == Phase::kAfter;
}

}  // namespace

Cycles::Cycles(const Alignment& reference) {
  if (!reference.of_one_rank) return;
  std::map<std::int32_t, std::vector<const LogicalTensor*>> iterations;
  for (const auto& [id, tensor] : reference.tensors) iterations[id.iteration].push_back(&tensor);
  for (auto& [iteration, tensors] : iterations) {
    std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->order < b->order; });
    std::vector<std::uint64_t>& starts = starts_[iteration];
    // Of a light iteration, losses are all that there is of forwards; a step ends them.
    const bool has_forward = std::any_of(tensors.begin(), tensors.end(), [](const LogicalTensor* tensor) {
      return phase_of(tensor->id) == Phase::kForward;
    });
    const Phase beginning = has_forward ? Phase::kForward : Phase::kLoss;
    bool forward_ended = false;
    for (const LogicalTensor* tensor : tensors) {
      const Phase phase = phase_of(tensor->id);
      if (phase == beginning && std::exchange(forward_ended, false)) starts.push_back(tensor->order);
      if (ends_forward(phase)) forward_ended = true;
      if (phase == Phase::kMainGrad || phase == Phase::kDelta || phase == Phase::kAfter) {
        first_step_.try_emplace(iteration, static_cast<std::int32_t>(starts.size()));
      }
      const std::string model = further_model_of(tensor->id.name.get());
      for (const auto& of_model : {std::optional(model), std::optional<std::string>()}) {
        last_[{iteration, tensor->id.microbatch, phase, of_model}] = static_cast<std::int32_t>(starts.size());
      }
    }
  }
}

std::optional<std::int32_t> Cycles::last_of(const TensorId& id, Phase phase) const {
  const std::string model = further_model_of(id.name.get());
  for (const auto& of_model : {std::optional(model), std::optional<std::string>()}) {
    const auto found = last_.find({id.iteration, id.microbatch, phase, of_model});
    if (found != last_.end()) return found->second;
  }
  return std::nullopt;
}

std::int32_t Cycles::of(const Finding& finding) const {
  const auto found = starts_.find(finding.id.iteration);
  const Phase phase = phase_of(finding.id);
  if (found == starts_.end() || phase == Phase::kParameters) return 0;
  // When a model that no optimizer updates is changed, nobody records: at the earliest, behind a step.
  if (finding.verdict == Verdict::kMissing && finding.id.kind == Kind::kBufferAfter && !finding.only_in_candidate) {
    const auto step = first_step_.find(finding.id.iteration);
    if (step != first_step_.end()) return step->second;
  }
  const std::vector<std::uint64_t>& starts = found->second;
  // A loss is recorded at any time behind its forward.
  if (phase == Phase::kLoss || finding.only_in_candidate) {
    auto last = last_of(finding.id, phase == Phase::kLoss ? Phase::kForward : phase);
    if (!last) last = last_of(finding.id, phase);
    return last.value_or(static_cast<std::int32_t>(starts.size()));
  }
  return static_cast<std::int32_t>(std::upper_bound(starts.begin(), starts.end(), finding.order) - starts.begin());
}

}  // namespace ttrace
