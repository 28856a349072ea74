// The shape is halved, again and again, at edges of the boxes, until each part is filled by the same
// boxes everywhere: by none (a gap), by one (as it should be), or by several (an overlap). Cutting at the
// median edge of the dimension that has most of them keeps the depth logarithmic for shards, which lie in
// a grid, and a box is cut only where another box's edge crosses it.
#include "align/coverage.h"

#include <algorithm>
#include <tuple>

namespace ttrace {
namespace {

using Members = std::vector<std::size_t>;  // indexes of boxes

bool lies_in(const Box& box, const Shape& shape) {
  if (box.start.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.start[d] < 0 || box.size[d] < 0 || box.start[d] > shape[d] - box.size[d]) return false;
  }
  return true;
}

bool meets(const Box& box, const Box& region) {
  for (std::size_t d = 0; d < region.start.size(); ++d) {
    if (box.start[d] >= region.start[d] + region.size[d] || region.start[d] >= box.start[d] + box.size[d]) return false;
  }
  return true;
}

// The edges of the members along `dim` that lie strictly inside the region, sorted, each once.
std::vector<std::int64_t> inner_edges(const Box& region, std::span<const Box> boxes, const Members& members,
                                      std::size_t dim) {
  const std::int64_t begin = region.start[dim];
  const std::int64_t end = begin + region.size[dim];
  std::vector<std::int64_t> found;
  for (const std::size_t i : members) {
    for (const std::int64_t edge : {boxes[i].start[dim], boxes[i].start[dim] + boxes[i].size[dim]}) {
      if (begin < edge && edge < end) found.push_back(edge);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Members members_meeting(const Box& region, std::span<const Box> boxes, const Members& members) {
  Members result;
  std::copy_if(members.begin(), members.end(), std::back_inserter(result),
               [&](std::size_t i) { return meets(boxes[i], region); });
  return result;
}

// Halves the region until no edge lies inside, and adds its gaps and overlaps. `members` are the boxes that meet it.
void cover_region(const Box& region, std::span<const Box> boxes, const Members& members, Coverage& coverage) {
  std::size_t dim = 0;
  std::vector<std::int64_t> cuts;
  for (std::size_t d = 0; d < region.start.size(); ++d) {
    std::vector<std::int64_t> found = inner_edges(region, boxes, members, d);
    if (found.size() > cuts.size()) {
      dim = d;
      cuts = std::move(found);
    }
  }
  // Without an edge inside, each member that meets the region holds all of it.
  if (cuts.empty()) {
    if (members.empty()) coverage.gaps.push_back({region, {}});
    if (members.size() > 1) coverage.overlaps.push_back({region, members});
    return;
  }
  const std::int64_t cut = cuts[cuts.size() / 2];
  Box lower = region, upper = region;
  lower.size[dim] = cut - region.start[dim];
  upper.start[dim] = cut;
  upper.size[dim] = region.size[dim] - lower.size[dim];
  for (const Box& half : {lower, upper}) cover_region(half, boxes, members_meeting(half, boxes, members), coverage);
}

// Joins neighbours along each dimension in turn.
void join_neighbours(std::vector<Region>& regions) {
  if (regions.empty()) return;
  for (std::size_t d = regions[0].box.start.size(); d-- > 0;) {
    const auto key = [d](const Region& region) {
      Shape across = region.box.start;
      across.erase(across.begin() + static_cast<std::ptrdiff_t>(d));
      Shape sizes = region.box.size;
      sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(d));
      return std::tuple(region.holders, across, sizes, region.box.start[d]);
    };
    std::sort(regions.begin(), regions.end(), [&](const Region& a, const Region& b) { return key(a) < key(b); });
    std::vector<Region> joined;
    for (Region& region : regions) {
      if (!joined.empty()) {
        Region grown = joined.back();
        grown.box.start[d] += grown.box.size[d];
        grown.box.size[d] = region.box.size[d];
        if (grown == region) {
          joined.back().box.size[d] += region.box.size[d];
          continue;
        }
      }
      joined.push_back(std::move(region));
    }
    regions = std::move(joined);
  }
  std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.box.start < b.box.start; });
}

}  // namespace

Coverage cover(const Shape& shape, std::span<const Box> boxes) {
  Coverage coverage;
  Members members;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (!lies_in(boxes[i], shape)) {
      coverage.outside.push_back(i);
    } else if (!is_empty(boxes[i])) {
      members.push_back(i);
    }
  }
  if (!is_empty(whole_box(shape))) cover_region(whole_box(shape), boxes, members, coverage);
  join_neighbours(coverage.gaps);
  join_neighbours(coverage.overlaps);
  return coverage;
}

}  // namespace ttrace
