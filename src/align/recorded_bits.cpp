#include "align/recorded_bits.h"

#include <algorithm>

#include "base/lookup.h"

namespace ttrace {

RecordedBits recorded_bits_of(const LogicalTensor& tensor) {
  RecordedBits bits;
  for (const Piece& piece : tensor.pieces()) bits.emplace_back(piece.rank, piece.entry->checksum);
  std::sort(bits.begin(), bits.end());
  bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  return bits;
}

bool is_handed_on(const Alignment& alignment, const TensorId& id, const TensorId& input) {
  const LogicalTensor *held = find_tensor(alignment, id), *given = find_tensor(alignment, input);
  if (held == nullptr || given == nullptr) return false;
  const RecordedBits own = recorded_bits_of(*held), others = recorded_bits_of(*given);
  return std::any_of(own.begin(), own.end(),
                     [&](const auto& bits) { return std::binary_search(others.begin(), others.end(), bits); });
}

bool is_constant_buffer(const Alignment& alignment, const TensorId& id) {
  const LogicalTensor* before = find_tensor(alignment, id.with_kind(Kind::kBuffer));
  const LogicalTensor* after = find_tensor(alignment, id.with_kind(Kind::kBufferAfter));
  return before != nullptr && after != nullptr && recorded_bits_of(*before) == recorded_bits_of(*after);
}

}  // namespace ttrace
