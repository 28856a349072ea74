#include "base/lookup.h"

#include <algorithm>

#include "base/tensor_name.h"

namespace ttrace {

const LogicalTensor* find_tensor(const Alignment& alignment, const TensorId& id) {
  const auto found = alignment.tensors.find(id);
  return found == alignment.tensors.end() ? nullptr : &found->second;
}

const LogicalTensor* find_tensor(const Alignment& alignment, TensorId id, Kind kind, const std::string& name) {
  id.kind = kind;
  id.name = name;
  if (kind != Kind::kInput && kind != Kind::kOutput) id.pass = Pass::kForward;
  return find_tensor(alignment, id);
}

std::vector<const LogicalTensor*> find_calls(const Alignment& alignment, const TensorId& id, Kind kind,
                                             std::string_view module) {
  std::vector<const LogicalTensor*> calls;
  while (const LogicalTensor* tensor = find_tensor(alignment, id, kind, call_of(module, calls.size()))) {
    calls.push_back(tensor);
  }
  return calls;
}

bool has_any_of_call(const Alignment& alignment, const TensorId& id, Kind kind) {
  const TensorName name(id.name);
  TensorId wanted = id.with_kind(kind);
  wanted.name = std::string(name.path);
  for (auto at = alignment.tensors.lower_bound(wanted); at != alignment.tensors.end(); ++at) {
    const TensorName other(at->first.name);
    wanted.name = at->first.name;
    if (at->first != wanted || !other.path.starts_with(name.path)) break;
    if (other.path == name.path && other.call == name.call) return true;
  }
  return false;
}

std::map<std::int32_t, std::int64_t> microbatch_counts(const Alignment& alignment) {
  std::map<std::int32_t, std::int64_t> counts;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.microbatch == kNoMicrobatch) continue;
    std::int64_t& count = counts[id.iteration];
    count = std::max(count, std::int64_t{id.microbatch} + 1);
  }
  return counts;
}

std::map<std::int32_t, MicrobatchCounts> other_microbatch_counts(const Alignment& reference,
                                                                 const Alignment& candidate) {
  std::map<std::int32_t, MicrobatchCounts> others;
  const auto of_candidate = microbatch_counts(candidate);
  for (const auto& [iteration, count] : microbatch_counts(reference)) {
    const auto found = of_candidate.find(iteration);
    if (found != of_candidate.end() && found->second != count) others[iteration] = {count, found->second};
  }
  return others;
}

bool is_of_other_model(const Alignment& alignment, const TensorId& id) {
  if (id.kind != Kind::kBufferAfter || alignment.tensors.empty()) return false;
  TensorId before = id.with_kind(Kind::kBuffer);
  if (find_tensor(alignment, before) != nullptr) return false;
  before.iteration = alignment.tensors.begin()->first.iteration;  // those after it may be light
  return find_tensor(alignment, before) == nullptr;
}

const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name) {
  TensorId before{.iteration = id.iteration, .kind = Kind::kParam, .name = name};
  if (const LogicalTensor* parameter = find_tensor(alignment, before)) return parameter;
  before.iteration -= 1;
  before.kind = Kind::kParamAfter;
  return find_tensor(alignment, before);
}

}  // namespace ttrace
