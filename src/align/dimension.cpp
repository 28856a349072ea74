#include "align/dimension.h"

#include <algorithm>

namespace ttrace {

std::vector<Dimension> dimensions_of(const Annotations& annotations, const TensorPlacement& placement,
                                     const std::string& name, const Shape& shape) {
  std::vector<Dimension> dimensions(shape.size());
  std::size_t digit = 0;
  for (const AxisUse& use : placement.uses) {
    if (use.placement != Placement::kShard) continue;
    Dimension& dimension = dimensions[dimension_of(annotations, placement, use, name, shape)];
    dimension.digits.push_back(digit++);
    dimension.splits.push_back(use.split);
  }
  for (Dimension& dimension : dimensions) {
    std::int64_t parts = 1;
    for (const AxisSplit& split : dimension.splits) parts *= split.size;
    dimension.sizes.assign(static_cast<std::size_t>(parts), -1);
  }
  return dimensions;
}

void lay_out(Dimension& dimension) {
  const auto known = std::find_if(dimension.sizes.begin(), dimension.sizes.end(), [](auto size) { return size >= 0; });
  std::replace(dimension.sizes.begin(), dimension.sizes.end(), std::int64_t{-1}, std::int64_t{*known});
  dimension.layout = nest(dimension.splits, dimension.sizes);
}

std::vector<std::int64_t> digits_of(const Frame& frame, std::int64_t shard) {
  std::vector<std::int64_t> values(frame.shard.size());
  for (std::size_t i = values.size(); i-- > 0;) {
    values[i] = shard % frame.shard[i].size;
    shard /= frame.shard[i].size;
  }
  return values;
}

std::size_t part_of(const Dimension& dimension, const std::vector<std::int64_t>& digits) {
  std::int64_t part = 0;
  for (std::size_t i = 0; i < dimension.digits.size(); ++i) {
    part = part * dimension.splits[i].size + digits[dimension.digits[i]];
  }
  return static_cast<std::size_t>(part);
}

std::vector<std::pair<Box, Box>> boxes_of(const std::vector<Dimension>& dimensions,
                                          const std::vector<std::int64_t>& digits) {
  std::vector<std::pair<Box, Box>> boxes(1);
  for (const Dimension& dimension : dimensions) {
    std::vector<std::pair<Box, Box>> longer;
    for (const auto& [local, logical] : boxes) {
      for (const Stretch& stretch : dimension.layout.parts[part_of(dimension, digits)]) {
        longer.emplace_back(local, logical);
        longer.back().first.start.push_back(stretch.local);
        longer.back().first.size.push_back(stretch.size);
        longer.back().second.start.push_back(stretch.logical);
        longer.back().second.size.push_back(stretch.size);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

}  // namespace ttrace
