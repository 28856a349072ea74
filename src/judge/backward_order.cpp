#include "judge/backward_order.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "align/recorded_bits.h"
#include "base/lookup.h"

namespace ttrace {
namespace {

// Returns the output or input that the gradient belongs to; null where it was not recorded.
const LogicalTensor* activation_of(const Alignment& reference, const TensorId& gradient) {
  const Kind kind = gradient.kind == Kind::kGradOutput ? Kind::kOutput : Kind::kInput;
  return find_tensor(reference, gradient, kind, gradient.name);
}

bool is_one_gradient(const Alignment& reference, const LogicalTensor& a, const LogicalTensor& b) {
  if (a.id.iteration != b.id.iteration || a.id.microbatch != b.id.microbatch || a.bytes != b.bytes) return false;
  const LogicalTensor *of_a = activation_of(reference, a.id), *of_b = activation_of(reference, b.id);
  if (of_a == nullptr || of_b == nullptr) return false;
  const RecordedBits bits = recorded_bits_of(a);
  return !bits.empty() && bits == recorded_bits_of(b) && recorded_bits_of(*of_a) == recorded_bits_of(*of_b);
}

}  // namespace

std::map<TensorId, std::uint64_t> backward_order(const Alignment& reference) {
  std::vector<const LogicalTensor*> gradients;
  for (const auto& [id, tensor] : reference.tensors) {
    if (id.kind == Kind::kGradOutput || id.kind == Kind::kGradInput) gradients.push_back(&tensor);
  }
  std::stable_sort(gradients.begin(), gradients.end(),
                   [](const LogicalTensor* a, const LogicalTensor* b) { return a->order < b->order; });
  std::map<TensorId, std::uint64_t> order;
  for (std::size_t begin = 0, end = 0; begin < gradients.size(); begin = end) {
    end = begin + 1;
    while (end < gradients.size() && is_one_gradient(reference, *gradients[begin], *gradients[end])) ++end;
    for (std::size_t i = begin; i < end && end - begin > 1; ++i) {
      order.emplace(gradients[i]->id, gradients[begin + end - 1 - i]->order);
    }
  }
  return order;
}

}  // namespace ttrace
