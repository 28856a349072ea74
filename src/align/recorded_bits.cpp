#include "align/recorded_bits.h"

#include <algorithm>

namespace ttrace {

RecordedBits recorded_bits_of(const LogicalTensor& tensor) {
  RecordedBits bits;
  for (const Piece& piece : tensor.pieces()) bits.emplace_back(piece.rank, piece.entry->checksum);
  std::sort(bits.begin(), bits.end());
  bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  return bits;
}

}  // namespace ttrace
