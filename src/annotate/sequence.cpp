#include "annotate/sequence.h"

#include <algorithm>
#include <set>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

// The sizes of the last dimension of what a module takes in as a table of integers: token ids, [batch, sequence].
std::set<std::int64_t> sequence_lengths(const Alignment& reference) {
  std::set<std::int64_t> lengths;
  for (const auto& [id, tensor] : reference.tensors) {
    const bool is_integer = !is_floating(tensor.dtype) && tensor.dtype != Dtype::kBool;
    if (id.kind != Kind::kInput || !is_integer || tensor.shape.size() != 2 || tensor.shape[1] == 1) continue;
    lengths.insert(tensor.shape[1]);
  }
  return lengths;
}

bool splits_sequence(const AxisPlacement& axis, const Shape& shape, const std::set<std::int64_t>& lengths) {
  const auto dim = static_cast<std::size_t>(axis.dim);
  const bool is_channel = shape.size() >= 3 && dim + 1 == shape.size();
  return axis.placement == Placement::kShard && dim < shape.size() && !is_channel && lengths.contains(shape[dim]);
}

AxisObservation* find_axis(SubjectObservation& seen, const std::string& axis) {
  const auto found = std::find_if(seen.axes.begin(), seen.axes.end(),
                                  [&](const AxisObservation& other) { return other.placement.axis == axis; });
  return found == seen.axes.end() ? nullptr : &*found;
}

// True when a candidate without sequence parallelism holds the subject whole along the axis.
bool is_whole_without(std::vector<ObservedCandidate>& candidates, const SubjectKey& key, const std::string& axis) {
  return std::any_of(candidates.begin(), candidates.end(), [&](ObservedCandidate& other) {
    const auto found = other.tensors.find(key);
    if (other.mesh.aliases.contains(kSequenceAxis) || found == other.tensors.end()) return false;
    const AxisObservation* seen = find_axis(found->second, axis);
    return seen != nullptr && seen->by_default && seen->certain;
  });
}

}  // namespace

void name_sequence_splits(Observations& observations, const Subjects& subjects, const Mesh& mesh,
                          const Alignment& reference) {
  const auto alias = mesh.aliases.find(kSequenceAxis);
  if (alias == mesh.aliases.end()) return;
  const std::set<std::int64_t> lengths = sequence_lengths(reference);
  std::set<std::string> modules;  // through which a part of the sequence flows
  for (auto& [key, seen] : observations) {
    const auto subject = subjects.find(key);
    if (is_parameter_kind(key.second) || subject == subjects.end() || subject->second.reference.ragged) continue;
    for (AxisObservation& axis : seen.axes) {
      if (axis.placement.axis != alias->second) continue;
      if (!splits_sequence(axis.placement, subject->second.reference.largest, lengths)) continue;
      axis.placement.axis = kSequenceAxis;
      modules.emplace(TensorName(key.first).path);
    }
  }
  for (auto& [key, seen] : observations) {
    if (key.second != Kind::kParamGrad || !modules.contains(std::string(owner_of(key.first)))) continue;
    for (AxisObservation& axis : seen.axes) {
      if (axis.placement.axis == alias->second && axis.placement.placement == Placement::kPartial) {
        axis.placement.axis = kSequenceAxis;
      }
    }
  }
}

void name_sequence_splits(std::vector<ObservedCandidate>& candidates) {
  for (ObservedCandidate& candidate : candidates) {
    const auto alias = candidate.mesh.aliases.find(kSequenceAxis);
    if (alias == candidate.mesh.aliases.end()) continue;
    for (auto& [key, seen] : candidate.tensors) {
      AxisObservation* axis = find_axis(seen, alias->second);
      if (axis == nullptr || axis->placement.placement == Placement::kReplicate) continue;
      if (is_whole_without(candidates, key, alias->second)) axis->placement.axis = kSequenceAxis;
    }
  }
}

}  // namespace ttrace
