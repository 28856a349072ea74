#include "base/lookup.h"

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

const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name) {
  TensorId before{.iteration = id.iteration, .kind = Kind::kParam, .name = name};
  if (const LogicalTensor* parameter = find_tensor(alignment, before)) return parameter;
  before.iteration -= 1;
  before.kind = Kind::kParamAfter;
  return find_tensor(alignment, before);
}

}  // namespace ttrace
