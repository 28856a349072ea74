#include "annotate/first_activations.h"

#include <algorithm>

#include "base/tensor_name.h"

namespace ttrace {

FirstActivations::FirstActivations(const AlignedTrace& aligned) : first_members_(*aligned.trace) {
  for (const auto& [id, tensor] : aligned.alignment.tensors) {  // by iteration and micro-batch
    if (is_parameter_kind(id.kind) || id.kind == Kind::kScalar || id.pass != Pass::kForward) continue;
    const TensorName name(id.name);
    const std::string first = std::string(name.path) + std::string(name.member);
    calls_[{id.kind, first}].emplace(name.call);
    modules_.emplace(name.path);
    if (!name.call.empty() || !first_.try_emplace({id.kind, first}, &tensor).second) continue;
    in_order_[id.kind].push_back(&tensor);
  }
  for (auto& [kind, tensors] : in_order_) {
    std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->order < b->order; });
  }
}

std::string FirstActivations::full_name(const std::string& name, Kind kind) const {
  return TensorName(name).member.empty() ? name + first_members_.of(name, kind) : name;
}

const LogicalTensor* FirstActivations::find(const std::string& name, Kind kind) const {
  const auto found = first_.find({kind, full_name(name, kind)});
  return found == first_.end() ? nullptr : found->second;
}

const std::vector<const LogicalTensor*>& FirstActivations::of(Kind kind) const {
  static const std::vector<const LogicalTensor*> kNone;
  const auto found = in_order_.find(kind);
  return found == in_order_.end() ? kNone : found->second;
}

std::vector<std::string> FirstActivations::members(const std::string& module, Kind kind) const {
  std::vector<std::string> members;
  for (auto found = first_.lower_bound({kind, module}); found != first_.end(); ++found) {
    const TensorName name(found->first.second);
    if (found->first.first != kind || !found->first.second.starts_with(module)) break;
    if (name.path == module) members.emplace_back(name.member);
  }
  return members;
}

std::string FirstActivations::short_name(const std::string& name, Kind kind) const {
  const TensorName parts(name);
  return parts.member == first_members_.of(parts.path, kind) ? std::string(parts.path) : name;
}

std::size_t FirstActivations::calls(const std::string& name, Kind kind) const {
  const auto found = calls_.find({kind, full_name(name, kind)});
  return found == calls_.end() ? 0 : found->second.size();
}

}  // namespace ttrace
