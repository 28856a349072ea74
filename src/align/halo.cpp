#include "align/halo.h"

#include <map>
#include <vector>

#include "identify/box_bytes.h"

namespace ttrace {
namespace {

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
  const std::vector<std::byte> bytes = bytes_in(tail, shard.holder->trace->bytes_of(*shard.entry), *shard.entry);
  return are_varied(bytes, shard.entry->dtype) &&
         bytes == bytes_in(head, next.holder->trace->bytes_of(*next.entry), *next.entry);
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
