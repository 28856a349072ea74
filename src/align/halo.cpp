#include "align/halo.h"

#include <algorithm>
#include <map>
#include <vector>

namespace ttrace {
namespace {

std::vector<std::byte> bytes_in(const Shard& shard, const Box& box) {
  const std::byte* data = shard.holder->trace->bytes_of(*shard.entry);
  const Shape strides = row_major_strides(shard.entry->shape);
  const auto size = static_cast<std::int64_t>(size_of(shard.entry->dtype));
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < element_count(box.size); ++i) {
    const Shape index = index_at(i, box.size);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += (box.start[d] + index[d]) * strides[d];
    bytes.insert(bytes.end(), data + at * size, data + (at + 1) * size);
  }
  return bytes;
}

// True where the elements are not all one number: shifted by one, they are others.
bool are_varied(const std::vector<std::byte>& bytes, std::size_t element) {
  return bytes.size() > element &&
         !std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(element), bytes.end(), bytes.begin());
}

bool ends_as_begins(const Shard& shard, const Shard& next, std::size_t dim, std::int64_t overlap) {
  // Sizes of one tensor of the name say how long the overlap is; others of it may be shorter.
  const auto is_longer = [&](const Shard& one) {
    const Shape& shape = one.entry->shape;
    return dim < shape.size() && shape[dim] > overlap;
  };
  if (!is_longer(shard) || !is_longer(next) || shard.entry->dtype != next.entry->dtype) return false;
  Box tail = whole_box(shard.entry->shape), head = whole_box(next.entry->shape);
  tail.start[dim] = tail.size[dim] - overlap;
  tail.size[dim] = head.size[dim] = overlap;
  const std::vector<std::byte> bytes = bytes_in(shard, tail);
  return are_varied(bytes, size_of(shard.entry->dtype)) && bytes == bytes_in(next, head);
}

}  // namespace

bool neighbours_share(const Group& group, const TensorPlacement& placement, int dim, std::int64_t overlap) {
  std::map<std::vector<std::int64_t>, const Shard*> shards;  // by where they lie otherwise, and last along `dim`
  for (const Shard& shard : group.shards) {
    if (shard.entry->sketch || shard.entry->mapping) return false;
    std::vector<std::int64_t> at = {shard.occurrence.stage, static_cast<std::int64_t>(shard.occurrence.name),
                                    shard.microbatch};
    std::int64_t along = 0;
    for (const AxisUse& use : placement.uses) {
      if (use.placement != Placement::kShard) continue;
      (use.dim == dim ? along : at.emplace_back()) = coordinate_on(*shard.holder, use.axis);
    }
    at.push_back(along);
    shards.emplace(std::move(at), &shard);
  }
  bool any = false;
  for (const auto& [at, shard] : shards) {
    std::vector<std::int64_t> beside = at;
    ++beside.back();
    const auto next = shards.find(beside);
    if (next == shards.end()) continue;
    if (!ends_as_begins(*shard, *next->second, static_cast<std::size_t>(dim), overlap)) return false;
    any = true;
  }
  return any;
}

}  // namespace ttrace
