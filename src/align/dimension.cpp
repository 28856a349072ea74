#include "align/dimension.h"

#include <fmt/format.h>

#include <algorithm>

#include "align/coverage.h"
#include "base/error.h"

namespace ttrace {

std::vector<Dimension> dimensions_of(const TensorPlacement& placement, const std::string& name, const Shape& shape,
                                     const Shape* reference) {
  std::vector<Dimension> dimensions(shape.size());
  std::size_t digit = 0;
  for (const AxisUse& use : placement.uses) {
    if (use.placement != Placement::kShard) continue;
    const std::size_t index = dimension_of(placement, use, name, shape);
    Dimension& dimension = dimensions[index];
    dimension.digits.push_back(digit++);
    dimension.splits.push_back(use.split);
    if (!use.unpadded) continue;
    if (dimension.unpadded) {
      throw InputError(fmt::format("{}: two axes say where the padding of dimension {} begins; expected one",
                                   where(placement, use), index));
    }
    if (*use.unpadded != kReferenceExtent) {
      dimension.unpadded = use.unpadded;
    } else if (reference != nullptr && reference->size() == shape.size()) {
      dimension.unpadded = (*reference)[index];
    }
  }
  for (Dimension& dimension : dimensions) {
    std::int64_t parts = 1;
    for (const AxisSplit& split : dimension.splits) parts *= split.size;
    dimension.sizes.assign(static_cast<std::size_t>(parts), -1);
  }
  return dimensions;
}

DimensionPool::Alike& DimensionPool::find(const TensorPlacement& placement, const std::string& name, const Shape& shape,
                                          const Shape* reference) {
  const Key key{&placement, reference, shape.size()};
  {
    const std::shared_lock lock(busy_);
    if (const auto found = alike_.find(key); found != alike_.end()) return found->second;
  }
  std::vector<Dimension> blank = dimensions_of(placement, name, shape, reference);
  const std::lock_guard lock(busy_);
  return alike_.try_emplace(key, std::move(blank)).first->second;
}

DimensionPool::Shared DimensionPool::Alike::find(const Sizes& sizes) {
  const std::lock_guard lock(busy_);
  const auto found = laid_out_.find(sizes);
  return found == laid_out_.end() ? nullptr : found->second;
}

DimensionPool::Shared DimensionPool::Alike::add(Sizes sizes, std::vector<Dimension> dimensions) {
  auto made = std::make_shared<const std::vector<Dimension>>(std::move(dimensions));
  const std::lock_guard lock(busy_);
  return laid_out_.try_emplace(std::move(sizes), std::move(made)).first->second;
}

void lay_out(Dimension& dimension) {
  const auto known = std::find_if(dimension.sizes.begin(), dimension.sizes.end(), [](auto size) { return size >= 0; });
  std::replace(dimension.sizes.begin(), dimension.sizes.end(), std::int64_t{-1}, std::int64_t{*known});
  dimension.layout = nest(dimension.splits, dimension.sizes);
  if (dimension.unpadded) cut_padding(dimension.layout, *dimension.unpadded);
  const bool occurrences = std::any_of(dimension.splits.begin(), dimension.splits.end(),
                                       [](const AxisSplit& split) { return split.layout->parts_share_elements; });
  if (occurrences) dimension.occurrences = number_occurrences(dimension.layout);
  const Coverage coverage = cover({dimension.layout.extent}, first_occurrences(dimension.layout).ranges);
  dimension.is_covered = coverage.gaps.empty() && coverage.overlaps.empty() && coverage.outside.empty();
}

HeldRanges first_occurrences(const AxisLayout& layout) {
  HeldRanges held;
  for (std::size_t part = 0; part < layout.parts.size(); ++part) {
    for (const Stretch& stretch : layout.parts[part]) {
      if (stretch.occurrence != 0) continue;
      held.ranges.push_back({{stretch.logical}, {stretch.size}});
      held.parts.push_back(part);
    }
  }
  return held;
}

std::vector<std::int64_t> digits_of(const std::vector<Dimension>& dimensions, std::int64_t shard) {
  std::size_t count = 0;
  for (const Dimension& dimension : dimensions) count += dimension.digits.size();
  std::vector<std::int64_t> digits(count);  // at first their sizes
  for (const Dimension& dimension : dimensions) {
    for (std::size_t i = 0; i < dimension.digits.size(); ++i) {
      digits[dimension.digits[i]] = dimension.splits[i].size;
    }
  }
  for (std::size_t i = count; i-- > 0;) {
    const std::int64_t size = digits[i];
    digits[i] = shard % size;
    shard /= size;
  }
  return digits;
}

std::size_t part_index(const Dimension& dimension, const std::vector<std::int64_t>& digits) {
  std::int64_t part = 0;
  for (std::size_t i = 0; i < dimension.digits.size(); ++i) {
    part = part * dimension.splits[i].size + digits[dimension.digits[i]];
  }
  return static_cast<std::size_t>(part);
}

std::vector<PlacedBox> boxes_of(const std::vector<Dimension>& dimensions, const std::vector<std::int64_t>& digits,
                                const Box& within) {
  std::vector<PlacedBox> boxes(1);
  for (std::size_t d = 0; d < dimensions.size(); ++d) {
    const std::int64_t begin = within.start[d], end = begin + within.size[d];
    std::vector<PlacedBox> longer;
    for (const PlacedBox& box : boxes) {
      for (const Stretch& stretch : dimensions[d].layout.parts[part_index(dimensions[d], digits)]) {
        const std::int64_t from = std::max(stretch.local, begin);
        const std::int64_t size = std::min(stretch.local + stretch.size, end) - from;
        if (size <= 0) continue;
        PlacedBox& next = longer.emplace_back(box);
        next.local.start.push_back(from);
        next.local.size.push_back(size);
        next.logical.start.push_back(stretch.logical + from - stretch.local);
        next.logical.size.push_back(size);
        next.occurrence = next.occurrence * dimensions[d].occurrences + stretch.occurrence;
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

Shape extents_of(const std::vector<Dimension>& dimensions) {
  Shape shape;
  for (const Dimension& dimension : dimensions) shape.push_back(dimension.layout.extent);
  return shape;
}

}  // namespace ttrace
