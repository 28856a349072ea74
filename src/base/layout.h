// Shard layouts: how the parts of one dimension, one part a coordinate of an axis, make up the whole.
//
// A new strategy is one function, registered by name; annotations then use it as
// `<axis>: {dim: d, layout: <name>}`, with its options beside it. src/base/striped.cpp is one to copy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapping.h"

namespace ttrace {

// Elements [local, local + size) of a part are elements [logical, logical + size) of the whole. Elements of a part that
// lie in no stretch are padding.
struct Stretch {
  std::int64_t local = 0, logical = 0, size = 0;
  std::int32_t occurrence = 0;  // where several parts hold an element: how many hold it before this one
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

// The arguments of a layout function.
struct AxisParts {
  std::span<const std::int64_t> sizes;  // the size of the part at each coordinate; one or more
  const LayoutOptions& options;         // every option that the layout takes, with positive numbers
};

// The result of a layout function, for all coordinates at once, so that the cost is linear in their number.
struct AxisLayout {
  std::int64_t extent = 0;                  // the size of the whole
  std::vector<std::vector<Stretch>> parts;  // by coordinate, each sorted by `local`; no stretch is empty
  friend bool operator==(const AxisLayout&, const AxisLayout&) = default;
};

// Thrown when parts of these sizes do not fit the layout. That becomes a finding, because the training code made them.
class LayoutError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Layout {
  AxisLayout (*function)(const AxisParts& parts) = nullptr;  // may throw LayoutError
  std::vector<std::string> options = {};                     // their names; an annotation must give them all
  // Several parts may hold the same element. Its occurrences are then equal values, but terms of a gradient, because
  // each rank uses its own only.
  bool parts_share_elements = false;
  bool recordable = false;  // a program may record it (`RecordedMapping`)
  bool of_slices = false;   // samplers deal samples out so (`microbatches: {order: slices, layout: ..}`)
};

// The parts lie one after the other, in order of the coordinate; their sizes may differ.
AxisLayout contiguous(const AxisParts& parts);
// Of 2n equal chunks part c holds chunks c and 2n - 1 - c, which balances causal attention.
AxisLayout zigzag(const AxisParts& parts);
// Element i lies on part i mod n.
AxisLayout striped(const AxisParts& parts);
// A part holds a share of each of several blocks, one after the other, such as a gate and an up projection. Option
// `blocks` gives the relative sizes of the blocks.
AxisLayout stacked(const AxisParts& parts);
// The key or value heads of grouped-query attention: part c holds the heads that its query heads use. Parts share heads
// where there are fewer heads than parts, or where their number does not divide. Options `query_heads` and `kv_heads`
// give the numbers of heads in the whole.
AxisLayout kv_heads(const AxisParts& parts);
// Query, key and value heads, stacked in this order, with the same options.
AxisLayout qkv_heads(const AxisParts& parts);
// Each part begins with the last elements of the one before it, as many as the option `overlap` says: a convolution's
// input beside its neighbours'.
AxisLayout halo(const AxisParts& parts);

// Replaces a layout that has the name already. Must not be called while another thread aligns.
void register_layout(std::string name, Layout layout);
const Layout* find_layout(std::string_view name);  // null when there is none
std::vector<std::string> layout_names();           // sorted
// The names of those that have the property: `layout_names(&Layout::of_slices)`. Sorted.
std::vector<std::string> layout_names(bool Layout::* property);
std::string name_of(const Layout& layout);  // of one that `find_layout` returned

// One of several sequences that are packed into a dimension, one after the other. It begins at `start` and has `padded`
// elements, of which the first `size` are real and the others padding.
struct Segment {
  std::int64_t start = 0, padded = 0, size = 0;
};

// One axis that splits a dimension.
struct AxisSplit {
  std::int64_t size = 1;
  std::string axis;  // the axis's name, as the placement has it
  const Layout* layout = find_layout("contiguous");
  LayoutOptions options;
  std::optional<std::vector<Segment>> segments;  // where there are some, each is laid out by itself
  // Where there are some, the whole is so many equal samples, which the parts hold in this order, in place of `layout`.
  std::vector<std::int64_t> samples;
};

// Lays out a dimension that several axes split, outermost first: the whole is laid out along the first axis, each part
// of it along the second, and so on. `sizes` are those of the innermost parts, the last axis varying fastest; the parts
// of the result have the same order. Without axes there is one part, the whole. Throws LayoutError.
AxisLayout nest(std::span<const AxisSplit> axes, std::span<const std::int64_t> sizes);

// Cuts off all elements of the whole from `extent` on. Throws LayoutError where the whole is shorter.
void cut_padding(AxisLayout& layout, std::int64_t extent);

// Numbers the occurrences of each element, in order of the part, and cuts stretches where the number changes. Returns
// how often an element occurs at most.
std::int32_t number_occurrences(AxisLayout& layout);

}  // namespace ttrace
