#include "align/passed_on.h"

#include <algorithm>

#include "align/recorded_bits.h"
#include "base/lookup.h"
#include "base/tensor_name.h"

namespace ttrace {

const LogicalTensor* passed_on_from(const Alignment& alignment, const TensorId& id) {
  const LogicalTensor* made = find_tensor(alignment, id);
  if (made == nullptr || (id.kind != Kind::kOutput && id.kind != Kind::kGradInput)) return nullptr;
  const TensorName name(id.name);
  const RecordedBits bits = recorded_bits_of(*made);
  if (bits.empty()) return nullptr;
  TensorId given = id;
  given.kind = id.kind == Kind::kOutput ? Kind::kInput : Kind::kGradOutput;
  given.name = std::string(name.path);
  for (auto at = alignment.tensors.lower_bound(given); at != alignment.tensors.end(); ++at) {
    TensorId same = at->first;
    same.name = given.name;
    if (same != given || !at->first.name.get().starts_with(name.path)) return nullptr;
    const TensorName other(at->first.name);
    if (other.path == name.path && other.call == name.call && recorded_bits_of(at->second) == bits) return &at->second;
  }
  return nullptr;
}

}  // namespace ttrace
