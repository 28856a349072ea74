#include "selfcheck/attention_call.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

bool is_called(const LogicalTensor& tensor, std::string_view word) {
  std::string name = tensor.module_class.substr(tensor.module_class.rfind('.') + 1);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find(word) != name.npos;
}

// `core#1` with the member `:0` is `core:0#1`.
std::string member_of(const std::string& name, std::string_view member) {
  const std::size_t call = name.find('#');
  return call == name.npos ? name + std::string(member)
                           : name.substr(0, call) + std::string(member) + name.substr(call);
}

const LogicalTensor* floating_input_of(const Alignment& alignment, const TensorId& id,
                                       std::initializer_list<std::string_view> members) {
  for (const std::string_view member : members) {
    const LogicalTensor* found = find_tensor(alignment, id, Kind::kInput, member_of(id.name, member));
    if (found != nullptr && is_floating(found->dtype)) return found;
  }
  return nullptr;
}

// Outputs of the modules inside the one whose output `id` names, in the same call of it.
std::vector<const LogicalTensor*> outputs_inside(const Alignment& alignment, const TensorId& id) {
  const std::size_t call = id.name.find('#');
  const std::string prefix = id.name.substr(0, call) + ".", suffix = call == id.name.npos ? "" : id.name.substr(call);
  TensorId first = id;
  first.name = prefix;
  std::vector<const LogicalTensor*> found;
  for (auto it = alignment.tensors.lower_bound(first); it != alignment.tensors.end(); ++it) {
    TensorId same = it->first;
    same.name = id.name;
    if (same != id || !it->first.name.starts_with(prefix)) break;
    const std::size_t own = it->first.name.find('#');
    if ((own == id.name.npos ? "" : it->first.name.substr(own)) == suffix) found.push_back(&it->second);
  }
  return found;
}

bool has_parameters(const Alignment& alignment, const TensorId& id, const std::string& path) {
  const TensorId first{.iteration = id.iteration, .kind = Kind::kParam, .name = path + "."};
  const auto found = alignment.tensors.lower_bound(first);
  return found != alignment.tensors.end() && found->first.kind == Kind::kParam &&
         found->first.name.starts_with(first.name);
}

void find_inside(const Alignment& alignment, AttentionCall& call) {
  const std::vector<const LogicalTensor*> inside = outputs_inside(alignment, call.context->id);
  for (const LogicalTensor* output : inside) {
    if (!is_called(*output, "softmax") || !is_floating(output->dtype)) continue;
    if (is_called(*output, "softmaxone")) call.plain_softmax = false;
    // The outermost: a softmax that masks may call another one inside.
    if (call.probabilities != nullptr && call.probabilities->id.name.size() <= output->id.name.size()) continue;
    const LogicalTensor* scores = floating_input_of(alignment, output->id, {"", ":0", ":input"});
    if (scores == nullptr || scores->shape != output->shape || scores->shape.size() != 4) continue;
    call.scores = scores;
    call.probabilities = call.applied = output;
  }
  if (call.probabilities == nullptr) return;
  for (const LogicalTensor* output : inside) {
    if (is_called(*output, "dropout") && output->shape == call.scores->shape &&
        output->order > call.probabilities->order) {
      call.applied = output;
    }
  }
}

}  // namespace

std::optional<AttentionCall> attention_call_of(const Alignment& alignment, const LogicalTensor& output) {
  if (output.id.name.find(':') != output.id.name.npos || !is_called(output, "attention")) return {};
  AttentionCall call;
  call.context = &output;
  call.path = output.id.name.substr(0, output.id.name.find('#'));
  call.query = floating_input_of(alignment, output.id, {":0", ":query", ":query_layer"});
  call.key = floating_input_of(alignment, output.id, {":1", ":key", ":key_layer"});
  call.value = floating_input_of(alignment, output.id, {":2", ":value", ":value_layer"});
  for (const LogicalTensor* tensor : {call.query, call.key, call.value}) {
    if (tensor == nullptr || tensor->shape.size() != 4) return {};
  }
  if (has_parameters(alignment, output.id, call.path)) call.plain_softmax = false;
  find_inside(alignment, call);
  return call;
}

const LogicalTensor* gradient_of(const Alignment& alignment, const LogicalTensor& tensor) {
  const Kind kind = tensor.id.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput;
  const LogicalTensor* gradient = find_tensor(alignment, tensor.id, kind, tensor.id.name);
  return gradient != nullptr && gradient->shape == tensor.shape && is_floating(gradient->dtype) ? gradient : nullptr;
}

}  // namespace ttrace
