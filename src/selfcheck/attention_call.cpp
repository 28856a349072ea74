#include "selfcheck/attention_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/tensor_name.h"

namespace ttrace {
namespace {

bool class_name_contains(const LogicalTensor& tensor, std::string_view word) {
  std::string name(last_component(tensor.module_class));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find(word) != name.npos;
}

const LogicalTensor* find_floating_input(const Alignment& alignment, const TensorId& id,
                                         std::initializer_list<std::string_view> members) {
  for (const std::string_view member : members) {
    const LogicalTensor* found = find_tensor(alignment, id, Kind::kInput, TensorName(id.name).with_member(member));
    if (found != nullptr && is_floating(found->dtype)) return found;
  }
  return nullptr;
}

// Returns the outputs of all modules inside the one whose output is `id`, as far as they belong to the same call of it.
std::vector<const LogicalTensor*> outputs_inside(const Alignment& alignment, const TensorId& id) {
  const TensorName outer(id.name);
  TensorId first = id;
  first.name = fmt::format("{}.", outer.path);
  std::vector<const LogicalTensor*> found;
  for (auto it = alignment.tensors.lower_bound(first); it != alignment.tensors.end(); ++it) {
    TensorId same = it->first;
    same.name = id.name;
    const TensorName inner(it->first.name);
    if (same != id || !is_inside(inner.path, outer.path)) break;
    if (inner.call == outer.call) found.push_back(&it->second);
  }
  return found;
}

bool has_parameters(const Alignment& alignment, const TensorId& id, const std::string& path) {
  const TensorId first{.iteration = id.iteration, .kind = Kind::kParam, .name = path + "."};
  const auto found = alignment.tensors.lower_bound(first);
  return found != alignment.tensors.end() && found->first.kind == Kind::kParam && is_inside(found->first.name, path);
}

void find_softmax_and_dropout(const Alignment& alignment, AttentionCall& call) {
  const std::vector<const LogicalTensor*> inside = outputs_inside(alignment, call.context->id);
  for (const LogicalTensor* output : inside) {
    if (!class_name_contains(*output, "softmax") || !is_floating(output->dtype)) continue;
    if (class_name_contains(*output, "softmaxone")) call.plain_softmax = false;
    // A softmax module that masks may call a plain one; the shorter name is the outer module's.
    if (call.probabilities != nullptr && call.probabilities->id.name.size() <= output->id.name.size()) continue;
    const LogicalTensor* scores = find_floating_input(alignment, output->id, {"", ":0", ":input"});
    if (scores == nullptr || scores->shape != output->shape || scores->shape.size() != 4) continue;
    call.scores = scores;
    call.probabilities = call.applied = output;
  }
  if (call.probabilities == nullptr) return;
  for (const LogicalTensor* output : inside) {
    if (class_name_contains(*output, "dropout") && output->shape == call.scores->shape &&
        output->order > call.probabilities->order) {
      call.applied = output;
    }
  }
}

}  // namespace

bool is_attention(const LogicalTensor& output) { return class_name_contains(output, "attention"); }

std::optional<AttentionCall> find_attention_call(const Alignment& alignment, const LogicalTensor& output) {
  const TensorName name(output.id.name);
  if (!name.member.empty() || !is_attention(output)) return {};
  AttentionCall call;
  call.context = &output;
  call.path = name.path;
  call.query = find_floating_input(alignment, output.id, {":0", ":query", ":query_layer"});
  call.key = find_floating_input(alignment, output.id, {":1", ":key", ":key_layer"});
  call.value = find_floating_input(alignment, output.id, {":2", ":value", ":value_layer"});
  for (const LogicalTensor* tensor : {call.query, call.key, call.value}) {
    if (tensor == nullptr || tensor->shape.size() != 4) return {};
  }
  if (has_parameters(alignment, output.id, call.path)) call.plain_softmax = false;
  find_softmax_and_dropout(alignment, call);
  return call;
}

const LogicalTensor* find_gradient(const Alignment& alignment, const LogicalTensor& tensor) {
  const Kind kind = tensor.id.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput;
  const LogicalTensor* gradient = find_tensor(alignment, tensor.id, kind, tensor.id.name);
  return gradient != nullptr && gradient->shape == tensor.shape && is_floating(gradient->dtype) ? gradient : nullptr;
}

}  // namespace ttrace
