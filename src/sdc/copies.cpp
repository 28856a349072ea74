#include "sdc/copies.h"

#include <algorithm>

namespace ttrace {
namespace {

// True where the program recorded that the two ranks hold different parts of the tensor.
bool are_known_parts(const RecordedPair& a, const RecordedPair& b) {
  const auto &mapping = a.healthy->mapping, &other = b.healthy->mapping;
  if (!mapping || !other) return false;
  if (mapping->fragment != other->fragment) return true;
  if (!mapping->axes) return false;
  return std::any_of(mapping->axes->begin(), mapping->axes->end(), [&](const RecordedMapping::Axis& axis) {
    if (axis.placement.placement == Placement::kReplicate) return false;
    const auto at = a.rank->coordinates.find(axis.placement.axis);
    const auto other_at = b.rank->coordinates.find(axis.placement.axis);
    if (at == a.rank->coordinates.end() || other_at == b.rank->coordinates.end()) return false;
    return at->second != other_at->second;
  });
}

bool are_copies(const RecordedPair& a, const RecordedPair& b) {
  const Entry &entry = *a.healthy, &other = *b.healthy;
  if (entry.checksum != other.checksum || entry.dtype != other.dtype || entry.shape != other.shape) return false;
  return a.mismatch.healthy_square != 0 && !are_known_parts(a, b);
}

}  // namespace

std::vector<Copies> parts_of(std::span<const RecordedPair* const> shards) {
  std::vector<Copies> parts;
  for (const RecordedPair* shard : shards) {
    const auto found = std::find_if(parts.begin(), parts.end(),
                                    [&](const Copies& copies) { return are_copies(*copies.front(), *shard); });
    if (found == parts.end()) {
      parts.push_back({shard});
    } else {
      found->push_back(shard);
    }
  }
  return parts;
}

bool disagree(const Copies& copies) {
  return std::any_of(copies.begin(), copies.end(), [&](const RecordedPair* copy) {
    return copy->suspect->checksum != copies.front()->suspect->checksum;
  });
}

}  // namespace ttrace
