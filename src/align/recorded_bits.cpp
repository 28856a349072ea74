#include "align/recorded_bits.h"

#include <algorithm>
#include <map>

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

bool have_same_recorded_bits(const LogicalTensor& one, const LogicalTensor& other) {
  const auto bits = [](const LogicalTensor& tensor) {
    std::map<std::int32_t, std::pair<Shape, std::uint64_t>> of_ranks;
    for (const Piece& piece : tensor.pieces()) of_ranks[piece.rank] = {piece.entry->shape, piece.entry->checksum};
    return of_ranks;
  };
  return bits(one) == bits(other);
}

bool is_constant_buffer(const Alignment& alignment, const TensorId& id) {
  const LogicalTensor* before = find_tensor(alignment, id.with_kind(Kind::kBuffer));
  const LogicalTensor* after = find_tensor(alignment, id.with_kind(Kind::kBufferAfter));
  return before != nullptr && after != nullptr && recorded_bits_of(*before) == recorded_bits_of(*after);
}

}  // namespace ttrace
