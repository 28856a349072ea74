#include "align/fragment.h"

#include <algorithm>
#include <optional>

#include "align/coverage.h"

namespace ttrace {
namespace {

std::int64_t dot(const Shape& index, const Shape& strides) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < index.size(); ++d) sum += index[d] * strides[d];
  return sum;
}

// Adds the boxes of the elements [begin, end) of the dimensions from `dim` on; `row` is the index in the dimensions
// before.
void add_boxes(const Shape& shape, std::size_t dim, Shape& row, std::int64_t begin, std::int64_t end,
               std::vector<Box>& boxes) {
  if (begin == end) return;
  const auto add = [&](std::int64_t from, std::int64_t count) {
    Box box{row, Shape(row.size(), 1)};
    box.start.push_back(from);
    box.size.push_back(count);
    for (std::size_t d = dim + 1; d < shape.size(); ++d) {
      box.start.push_back(0);
      box.size.push_back(shape[d]);
    }
    boxes.push_back(std::move(box));
  };
  if (dim == shape.size()) return boxes.push_back({row, Shape(row.size(), 1)});
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const auto add_part = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
    row.push_back(index);
    add_boxes(shape, dim + 1, row, from, to, boxes);
    row.pop_back();
  };
  std::int64_t first = begin / inner;
  const std::int64_t last = end / inner;
  if (begin % inner != 0) {
    add_part(first, begin % inner, first == last ? end % inner : inner);
    if (first++ == last) return;
  }
  if (first < last) add(first, last - first);
  if (end % inner != 0) add_part(last, 0, end % inner);
}

// The part of a held box that lies in `box`.
HeldBox clipped(const HeldBox& held, const Box& box) {
  HeldBox part{box, held.offset, held.strides};
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    part.offset += (box.start[d] - held.box.start[d]) * held.strides[d];
  }
  return part;
}

}  // namespace

const Shape& own_shape(const Entry& entry) {
  return entry.mapping && entry.mapping->fragment ? entry.mapping->fragment->whole : entry.shape.get();
}

std::vector<HeldBox> held_boxes(const Entry& entry) {
  std::vector<HeldBox> held;
  if (!entry.mapping || !entry.mapping->fragment) {
    held.push_back({whole_box(entry.shape), 0, row_major_strides(entry.shape)});
  } else if (const Fragment& fragment = *entry.mapping->fragment; fragment.range) {
    const Shape strides = row_major_strides(fragment.whole);
    for (Box& box : boxes_of_range(fragment.whole, fragment.range->begin, fragment.range->end)) {
      const std::int64_t offset = dot(box.start, strides) - fragment.range->begin;
      held.push_back({std::move(box), offset, strides});
    }
  } else {
    const Shape strides = row_major_strides(entry.shape);
    for (const Slice& slice : fragment.slices) held.push_back({slice.whole, dot(slice.local.start, strides), strides});
  }
  std::erase_if(held, [](const HeldBox& box) { return is_empty(box.box); });
  return held;
}

std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end) {
  std::vector<Box> boxes;
  Shape row;
  add_boxes(shape, 0, row, begin, end, boxes);
  return boxes;
}

std::vector<LayeredBox> layer_boxes(const Shape& shape, std::span<const std::vector<HeldBox>> held) {
  std::vector<LayeredBox> layered;
  std::vector<Box> boxes;
  for (std::size_t holder = 0; holder < held.size(); ++holder) {
    for (const HeldBox& box : held[holder]) {
      layered.push_back({box, holder, 0});
      boxes.push_back(box.box);
    }
  }
  const Coverage coverage = cover(shape, boxes);
  if (coverage.overlaps.empty()) return layered;
  // A region that several holders share is cut out of each of their boxes. For each holder it becomes a box of its own,
  // in a layer of its own.
  std::vector<LayeredBox> result;
  std::vector<std::vector<Box>> shared(layered.size());
  for (const Region& overlap : coverage.overlaps) {
    for (std::size_t layer = 0; layer < overlap.holders.size(); ++layer) {
      const LayeredBox& source = layered[overlap.holders[layer]];
      result.push_back({clipped(source.held, overlap.box), source.holder, static_cast<std::int32_t>(layer)});
      shared[overlap.holders[layer]].push_back(overlap.box);
    }
  }
  for (std::size_t i = 0; i < layered.size(); ++i) {
    std::vector<Box> inside;  // in coordinates of the box
    const Box& own = layered[i].held.box;
    for (Box box : shared[i]) {
      for (std::size_t d = 0; d < own.start.size(); ++d) box.start[d] -= own.start[d];
      inside.push_back(std::move(box));
    }
    for (Region& rest : cover(own.size, inside).gaps) {
      for (std::size_t d = 0; d < own.start.size(); ++d) rest.box.start[d] += own.start[d];
      result.push_back({clipped(layered[i].held, rest.box), layered[i].holder, 0});
    }
  }
  return result;
}

}  // namespace ttrace
