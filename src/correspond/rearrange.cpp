// An element of a part has one index for each of its axes. A dimension of a tensor counts through some axes in mixed
// radix, the last one fastest, and a term of a sum begins where the terms before it end:
//
//   (g (n + 1 + 1) d) c    dimension 0 = (g * (n + 2) + [j, n or n + 1]) * d + i, for the three terms; dimension 1 = c
//
// A box of the tensor is a box of its axes where each dimension's range is one of axes, and several such boxes where
// not: 5 to 21 of (h d), d = 8, is 5 to 8 of d at h = 0, all of d at h = 1, and 0 to 5 of d at h = 2. A box of axes
// goes to the other tensor in the same way: axes that are neighbours there, and whose strides follow from each other,
// make one range; the others are counted through, one box each.
#include "correspond/rearrange.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

namespace ttrace {
namespace {

struct Range {
  std::int64_t start = 0, size = 0;
};

// An axis in a dimension: an element one further along it is `step` further along the dimension.
struct AxisStep {
  std::string axis;
  std::int64_t size = 1, step = 1;
};

// A digit of a dimension's index. It is an axis, or a sum, of which the part has the stretch of one term with its axes.
struct Digit {
  std::int64_t size = 1, step = 1;
  Range stretch;
  std::vector<AxisStep> axes;  // the slowest first
};

// Says how a dimension is made of digits, the slowest first.
struct DimensionMap {
  std::vector<Digit> digits;

  // The dimension's index where all axes of the part are 0.
  std::int64_t first() const {
    std::int64_t index = 0;
    for (const Digit& digit : digits) index += digit.stretch.start * digit.step;
    return index;
  }
};

// Sets the axes of a product whose fastest axis has `step`. Returns the product's size.
std::int64_t add_axes(const AxisProduct& product, const AxisSizes& sizes, std::int64_t step,
                      std::vector<AxisStep>& axes) {
  std::int64_t count = 1;
  for (auto factor = product.rbegin(); factor != product.rend(); ++factor) {
    if (factor->name == "1") continue;
    const std::int64_t size = sizes.at(factor->name);
    axes.push_back({factor->name, size, step * count});
    count *= size;
  }
  std::reverse(axes.begin(), axes.end());
  return count;
}

DimensionMap map_of(const AxisProduct& dim, std::size_t term, const AxisSizes& sizes) {
  DimensionMap map;
  std::int64_t step = 1;
  for (auto factor = dim.rbegin(); factor != dim.rend(); ++factor) {
    if (factor->name == "1") continue;
    Digit digit;
    digit.step = step;
    if (factor->sum.empty()) {
      digit.size = add_axes({*factor}, sizes, step, digit.axes);
      digit.stretch = {0, digit.size};
    } else {
      digit.size = 0;
      for (std::size_t i = 0; i < factor->sum.size(); ++i) {
        if (i == term) digit.stretch = {digit.size, add_axes(factor->sum[i], sizes, step, digit.axes)};
        digit.size += *size_of_product(factor->sum[i], sizes);
      }
    }
    step *= digit.size;
    map.digits.push_back(std::move(digit));
  }
  std::reverse(map.digits.begin(), map.digits.end());
  return map;
}

std::vector<DimensionMap> maps_of(const Rearrangement& how, std::size_t side, const PatternPart& part) {
  std::vector<DimensionMap> maps;
  for (const AxisProduct& dim : all_dims(how.pattern.sides[side][part.tensor], how.ellipsis)) {
    maps.push_back(map_of(dim, part.term, how.sizes));
  }
  return maps;
}

// Cuts `range`, which counts in mixed radix through `sizes` from the one at `at` on, into ranges of each; `outer` are
// those of the sizes before.
void cut(const std::vector<std::int64_t>& sizes, std::size_t at, Range range, std::vector<Range>& outer,
         std::vector<std::vector<Range>>& out) {
  if (range.size <= 0) return;
  if (at == sizes.size()) return out.push_back(outer);
  std::int64_t inside = 1;
  for (std::size_t i = at + 1; i < sizes.size(); ++i) inside *= sizes[i];
  const auto take = [&](std::int64_t start, std::int64_t count, Range rest) {
    outer.push_back({start, count});
    cut(sizes, at + 1, rest, outer, out);
    outer.pop_back();
  };
  std::int64_t start = range.start;
  const std::int64_t end = range.start + range.size;
  if (start % inside != 0) {
    const std::int64_t stop = std::min(end, (start / inside + 1) * inside);
    take(start / inside, 1, {start % inside, stop - start});
    start = stop;
  }
  if (const std::int64_t whole = (end - start) / inside; whole > 0) {
    take(start / inside, whole, {0, inside});
    start += whole * inside;
  }
  if (start < end) take(start / inside, 1, {0, end - start});
}

std::vector<std::vector<Range>> cut(const std::vector<std::int64_t>& sizes, Range range) {
  std::vector<std::vector<Range>> cuts;
  std::vector<Range> outer;
  cut(sizes, 0, range, outer, cuts);
  return cuts;
}

using AxisBox = std::map<std::string, Range>;

// Every box of the first with every one of the others, which are of other axes.
std::vector<AxisBox> joined(const std::vector<AxisBox>& boxes, const std::vector<AxisBox>& others) {
  std::vector<AxisBox> both;
  for (const AxisBox& box : boxes) {
    for (const AxisBox& other : others) both.emplace_back(box).insert(other.begin(), other.end());
  }
  return both;
}

// The boxes of a digit's axes that make up `range` of it, as far as the part has that.
std::vector<AxisBox> axis_boxes(const Digit& digit, Range range) {
  const std::int64_t start = std::max(range.start, digit.stretch.start);
  const std::int64_t end = std::min(range.start + range.size, digit.stretch.start + digit.stretch.size);
  std::vector<std::int64_t> sizes;
  for (const AxisStep& axis : digit.axes) sizes.push_back(axis.size);
  std::vector<AxisBox> boxes;
  for (const std::vector<Range>& ranges : cut(sizes, {start - digit.stretch.start, end - start})) {
    AxisBox& box = boxes.emplace_back();
    for (std::size_t i = 0; i < ranges.size(); ++i) box[digit.axes[i].axis] = ranges[i];
  }
  return boxes;
}

// The boxes of axes that make up `range` of a dimension, as far as the part has it.
std::vector<AxisBox> axis_boxes(const DimensionMap& map, Range range) {
  std::vector<std::int64_t> sizes;
  for (const Digit& digit : map.digits) sizes.push_back(digit.size);
  std::vector<AxisBox> boxes;
  for (const std::vector<Range>& ranges : cut(sizes, range)) {
    std::vector<AxisBox> of_cut = {{}};
    for (std::size_t i = 0; i < ranges.size(); ++i) of_cut = joined(of_cut, axis_boxes(map.digits[i], ranges[i]));
    boxes.insert(boxes.end(), of_cut.begin(), of_cut.end());
  }
  return boxes;
}

// A stretch of a dimension of the target: its elements lie `stride` apart in the entry, from `offset` on.
struct Run {
  std::int64_t start = 0, size = 1, stride = 0, offset = 0;
};

std::vector<Run> runs_of(const DimensionMap& map, const AxisBox& box,
                         const std::map<std::string, std::int64_t>& strides) {
  Run inner{map.first(), 1, 0, 0};
  std::vector<const AxisStep*> axes, counted;  // the slowest first; those that are counted through one by one
  for (const Digit& digit : map.digits) {
    for (const AxisStep& axis : digit.axes) axes.push_back(&axis);
  }
  for (auto next = axes.rbegin(); next != axes.rend(); ++next) {
    const AxisStep* axis = *next;
    const Range range = box.at(axis->axis);
    const std::int64_t stride = strides.at(axis->axis);
    inner.start += range.start * axis->step;
    inner.offset += range.start * stride;
    if (range.size == 1) continue;
    const bool follows = inner.size == 1 || stride == inner.stride * inner.size;
    if (counted.empty() && axis->step == inner.size && follows) {
      if (inner.size == 1) inner.stride = stride;
      inner.size *= range.size;
    } else {
      counted.push_back(axis);
    }
  }
  std::vector<Run> runs = {inner};
  for (const AxisStep* axis : counted) {
    std::vector<Run> more;
    for (std::int64_t i = 0; i < box.at(axis->axis).size; ++i) {
      for (Run run : runs) {
        run.start += i * axis->step;
        run.offset += i * strides.at(axis->axis);
        more.push_back(run);
      }
    }
    runs = std::move(more);
  }
  return runs;
}

// One part of the source in one part of the target.
class PartMover {
 public:
  PartMover(const Rearrangement& how, const PatternPart& source, const PatternPart& target)
      : from_(maps_of(how, how.from, source)), to_(maps_of(how, 1 - how.from, target)) {}

  void move(const Piece& piece, const AxisSizes& source_fixed, const AxisSizes& target_fixed,
            std::vector<Piece>& out) const {
    std::map<std::string, std::int64_t> strides;
    std::int64_t offset = piece.offset;
    std::vector<AxisBox> boxes = {{}};
    for (std::size_t d = 0; d < from_.size(); ++d) {
      offset += (from_[d].first() - piece.logical.start[d]) * piece.strides[d];
      for (const Digit& digit : from_[d].digits) {
        for (const AxisStep& axis : digit.axes) strides[axis.axis] = axis.step * piece.strides[d];
      }
      boxes = joined(boxes, axis_boxes(from_[d], {piece.logical.start[d], piece.logical.size[d]}));
    }
    for (const auto& [axis, value] : source_fixed) {
      strides[axis] = 0;
      boxes = joined(boxes, {{{axis, {value, 1}}}});
    }
    for (AxisBox& box : boxes) {
      std::int64_t first = offset;
      if (fix(target_fixed, strides, box, first)) add(piece, box, strides, first, out);
    }
  }

 private:
  // Takes the one value of each axis that the target's name numbers. False where the box lacks it.
  static bool fix(const AxisSizes& fixed, const std::map<std::string, std::int64_t>& strides, AxisBox& box,
                  std::int64_t& offset) {
    for (const auto& [axis, value] : fixed) {
      Range& range = box.at(axis);
      if (value < range.start || value >= range.start + range.size) return false;
      range = {value, 1};
      offset += value * strides.at(axis);
    }
    return true;
  }

  void add(const Piece& piece, const AxisBox& box, const std::map<std::string, std::int64_t>& strides,
           std::int64_t offset, std::vector<Piece>& out) const {
    std::vector<Piece> pieces(1, piece);
    pieces[0].logical = {};
    pieces[0].strides.clear();
    pieces[0].offset = offset;
    for (const DimensionMap& map : to_) {
      std::vector<Piece> longer;
      for (const Piece& shorter : pieces) {
        for (const Run& run : runs_of(map, box, strides)) {
          Piece& next = longer.emplace_back(shorter);
          next.logical.start.push_back(run.start);
          next.logical.size.push_back(run.size);
          next.strides.push_back(run.stride);
          next.offset += run.offset;
        }
      }
      pieces = std::move(longer);
    }
    std::move(pieces.begin(), pieces.end(), std::back_inserter(out));
  }

  std::vector<DimensionMap> from_, to_;
};

}  // namespace

std::vector<Piece> rearranged(const Rearrangement& how, const PatternTensor& source, const std::vector<Piece>& pieces,
                              const PatternTensor& target) {
  const std::vector<PatternPart> from = how.pattern.parts(how.from), to = how.pattern.parts(1 - how.from);
  std::vector<Piece> result;
  for (std::size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
    const PatternPart& source_part = from[std::min(i, from.size() - 1)];
    const PatternPart& target_part = to[std::min(i, to.size() - 1)];
    if (source_part.tensor != source.tensor || target_part.tensor != target.tensor) continue;
    const PartMover mover(how, source_part, target_part);
    for (const Piece& piece : pieces) {
      if (!is_empty(piece.logical)) mover.move(piece, source.fixed, target.fixed, result);
    }
  }
  return result;
}

}  // namespace ttrace
