// Tensors of which it is open how they lie along some axes, and which placements explain the shapes that ranks recorded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "align/flat_rows.h"
#include "identify/identity.h"

namespace ttrace {

// An axis of which it is open how a tensor lies along it.
struct OpenAxis {
  int axis = -1;  // index into the table's axes
  std::int64_t size = 1;
  std::string name;
  bool slices = false;
};

// For each open axis, the dimension that it splits; -1: none.
using Assignment = std::vector<int>;

// A dimension whose parts are together longer than the reference's: behind its end they are padding, or each begins
// with the last elements of the one before it.
struct Longer {
  int dim = 0;
  std::int64_t overlap = 0;  // so many elements; 0: padding
  friend bool operator==(const Longer&, const Longer&) = default;
};

// An axis splits each block of a dimension by itself: the blocks' sizes in one part, as `blocks` of the layout `stacked`.
struct StackedBlocks {
  int axis = -1;  // index into the table's axes
  std::vector<std::int64_t> sizes;
};

// All tensors of one name and kind, which lie alike.
struct OpenSubject {
  std::vector<Group*> groups;
  std::vector<std::pair<const Group*, const Shape*>> known;  // those that the reference has, with its shape
  const TensorPlacement* given = nullptr;
  std::vector<OpenAxis> open;
  std::vector<Assignment> candidates;
  std::optional<Assignment> settled;
  bool by_custom = false;  // settled because samples mostly lie along the first dimension
  std::optional<Longer> longer;
  std::optional<StackedBlocks> blocks;  // absent: parts lie one behind the other, or nothing tells
  std::map<const Group*, FlatRows> flat;
};

// Of the reference's tensor; null where it has none.
const Shape* reference_shape(const ModelLayout& layout, TensorId id);

// The placement with the open axes as assigned, slices laid out as `slice_layout` says. Of the axes of one dimension those
// that are given come last, innermost: they are of the model, while an open one beside them is a slice of the batch.
TensorPlacement placed(const OpenSubject& subject, const Assignment& assignment, const Layout* slice_layout);

using Dimensions = std::vector<std::size_t>;

// Tells for each dimension whether the placement explains the sizes that the shards have in it; nothing where the
// shards have another number of dimensions than the reference. Inputs explain those that are `cut`.
std::optional<std::vector<bool>> explained_dimensions(const Group& group, const Shape& reference,
                                                      const TensorPlacement& placement, const Dimensions& cut = {});
bool explains(const Group& group, const Shape& reference, const TensorPlacement& placement, const Dimensions& cut = {});

// The dimensions in which each rank's part is as long as the inputs that it padded to the longest of its own samples.
Dimensions cut_dimensions(const Group& group, const Shape& reference, const RankTable& table,
                          const Microbatches& microbatches);

// The kind whose placement this one follows.
Kind lead_of(Kind kind);
// True where `lead` is settled, and lies along all open axes of `subject` as the assignment says.
bool follows(const OpenSubject& lead, const OpenSubject& subject, const Assignment& assignment);

// True where the tensor of one slice is a term of the whole's. A tensor that no slice splits was given to all, and
// its gradient has a term from each.
bool is_term(const Group& group, const OpenAxis& axis);

}  // namespace ttrace
