// Shard layouts: how the parts of one dimension, one part a coordinate of an axis, make up the whole.
//
// A new strategy is one function, registered by name; annotations then use it as
// `<axis>: {dim: d, layout: <name>}`. Contiguous blocks, zigzag chunks, stripes, stacked blocks and
// padding (a stretch of a part that no stretch names) all have this form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Elements [local, local + size) of a part are elements [logical, logical + size) of the whole.
struct Stretch {
  std::int64_t local = 0, logical = 0, size = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// What a layout function is told. A struct, so that a layout that needs more (the sizes of stacked
// blocks, an unpadded extent) adds a field and the others stay as they are.
struct AxisParts {
  std::span<const std::int64_t> sizes;  // of the part at each coordinate; one or more
};

// What it answers, for all coordinates at once, so that the cost is linear in their number.
struct AxisLayout {
  std::int64_t extent = 0;                  // of the whole
  std::vector<std::vector<Stretch>> parts;  // by coordinate; by `local`, none empty
  friend bool operator==(const AxisLayout&, const AxisLayout&) = default;
};
using Layout = AxisLayout (*)(const AxisParts& parts);

// The parts one after the other, in order of the coordinate; sizes may differ.
AxisLayout contiguous(const AxisParts& parts);

// Not to be called while another thread aligns. A name that is taken is replaced.
void register_layout(std::string name, Layout layout);
Layout find_layout(std::string_view name);  // null when there is none
std::vector<std::string> layout_names();    // sorted

// One axis that splits a dimension.
struct AxisSplit {
  std::int64_t size = 1;
  Layout layout = contiguous;
};

// Several axes on one dimension, outermost first: the whole is laid out along the first, each part of it
// along the second, and so on. `sizes` are those of the innermost parts, the last axis varying fastest,
// and so are the parts of the result. Without axes there is one part, the whole.
AxisLayout nest(std::span<const AxisSplit> axes, std::span<const std::int64_t> sizes);

}  // namespace ttrace
