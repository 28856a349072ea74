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

bool is_constant_buffer(const Alignment& alignment, const TensorId& id) {
  const LogicalTensor* before = find_tensor(alignment, id.with_kind(Kind::kBuffer));
  const LogicalTensor* after = find_tensor(alignment, id.with_kind(Kind::kBufferAfter));
  return before != nullptr && after != nullptr && recorded_bits_of(*before) == recorded_bits_of(*after);
}

}  // namespace ttrace
