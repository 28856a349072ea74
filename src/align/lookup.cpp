#include "align/lookup.h"

namespace ttrace {

const LogicalTensor* find_tensor(const Alignment& alignment, TensorId id, Kind kind, const std::string& name) {
  id.kind = kind;
  id.name = name;
  if (kind != Kind::kInput && kind != Kind::kOutput) id.pass = Pass::kForward;
  const auto found = alignment.tensors.find(id);
  return found == alignment.tensors.end() ? nullptr : &found->second;
}

const LogicalTensor* parameter_at(const Alignment& alignment, const TensorId& id, const std::string& name) {
  TensorId before{.iteration = id.iteration, .kind = Kind::kParam, .name = name};
  if (const auto found = alignment.tensors.find(before); found != alignment.tensors.end()) return &found->second;
  before.iteration -= 1;
  before.kind = Kind::kParamAfter;
  const auto found = alignment.tensors.find(before);
  return found == alignment.tensors.end() ? nullptr : &found->second;
}

}  // namespace ttrace
