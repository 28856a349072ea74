// Shard layouts: how the parts of one dimension, one part a coordinate of an axis, make up the whole.
//
// A new strategy is one function, registered by name; annotations then use it as
// `<axis>: {dim: d, layout: <name>}`, with its options beside it. src/align/striped.cpp is one to copy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/mapping.h"

namespace ttrace {

// Elements [local, local + size) of a part are elements [logical, logical + size) of the whole. What no
// stretch of a part names is padding.
struct Stretch {
  std::int64_t local = 0, logical = 0, size = 0;
  std::int32_t copy = 0;  // of an element that several parts hold: which of them this is
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// What a layout function is told.
struct AxisParts {
  std::span<const std::int64_t> sizes;  // of the part at each coordinate; one or more
  const LayoutOptions& options;         // all that the layout takes, positive numbers
};

// What it answers, for all coordinates at once, so that the cost is linear in their number.
struct AxisLayout {
  std::int64_t extent = 0;                  // of the whole
  std::vector<std::vector<Stretch>> parts;  // by coordinate; by `local`, none empty
  friend bool operator==(const AxisLayout&, const AxisLayout&) = default;
};

// Parts of these sizes cannot be laid out so: a finding, for the training code made them.
class LayoutError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Layout {
  AxisLayout (*function)(const AxisParts& parts) = nullptr;  // may throw LayoutError
  std::vector<std::string> options;                          // names, all needed
  // Several parts may hold an element. Of values the copies are equal, and gradients are their sum, because
  // each is used on its own rank only.
  bool copies = false;
};

// The parts one after the other, in order of the coordinate; sizes may differ.
AxisLayout contiguous(const AxisParts& parts);
// Of 2n equal chunks part c holds chunks c and 2n - 1 - c: balances causal attention.
AxisLayout zigzag(const AxisParts& parts);
// Element i lies on part i mod n.
AxisLayout striped(const AxisParts& parts);
// A part holds a share of each of several blocks, one after the other, as of gate and up projections. Option
// `blocks`: their relative sizes.
AxisLayout stacked(const AxisParts& parts);
// The key and value heads of grouped-query attention: part c holds those that its query heads use, so that
// parts share heads where there are fewer, or where the number does not divide. Options `query_heads`,
// `kv_heads`: of all parts.
AxisLayout kv_heads(const AxisParts& parts);
// Query, key and value heads stacked in this order, with the same options.
AxisLayout qkv_heads(const AxisParts& parts);

// Not to be called while another thread aligns. A name that is taken is replaced.
void register_layout(std::string name, Layout layout);
const Layout* find_layout(std::string_view name);  // null when there is none
std::vector<std::string> layout_names();           // sorted

// Sequences packed one after the other: each begins at `start` of a dimension with padding, has `padded`
// elements there, of which the first `size` are real.
struct Segment {
  std::int64_t start = 0, padded = 0, size = 0;
};

// One axis that splits a dimension.
struct AxisSplit {
  std::int64_t size = 1;
  std::string axis;  // its name, as the placement has it
  const Layout* layout = find_layout("contiguous");
  LayoutOptions options;
  std::optional<std::vector<Segment>> segments;  // the layout holds for each by itself
};

// Several axes on one dimension, outermost first: the whole is laid out along the first, each part of it
// along the second, and so on. `sizes` are those of the innermost parts, the last axis varying fastest,
// and so are the parts of the result. Without axes there is one part, the whole. Throws LayoutError.
AxisLayout nest(std::span<const AxisSplit> axes, std::span<const std::int64_t> sizes);

// Cuts off what lies at `extent` and behind it. Throws LayoutError where the whole is shorter.
void cut_padding(AxisLayout& layout, std::int64_t extent);

// Numbers the copies of each element, in order of the part, cutting stretches where the number changes.
// Returns how many there are at most.
std::int32_t number_copies(AxisLayout& layout);

}  // namespace ttrace
