// Types that say where a tensor lies: along an axis of the mesh, as a fragment of a larger tensor, and in what a
// recording program itself said of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "numeric/shape.h"

namespace ttrace {

struct Box {
  Shape start, size;  // same length; element ranges [start, start + size)
  friend bool operator==(const Box&, const Box&) = default;
};

inline Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

// True when the box has no elements. A box without dimensions is a scalar's, and has one.
inline bool is_empty(const Box& box) {
  return std::any_of(box.size.begin(), box.size.end(), [](std::int64_t size) { return size <= 0; });
}

// Says how a tensor lies along one axis of the mesh. An axis that is not named replicates.
enum class Placement : std::uint8_t {
  kReplicate,
  kShard,    // split along `dim`, sizes as recorded
  kPartial,  // the logical value is the sum over the axis
};

// The options of a layout, by name, as in `blocks: [1, 1]`.
using LayoutOptions = std::map<std::string, std::vector<std::int64_t>>;

struct AxisPlacement {
  std::string axis;  // an axis of the trace, an alias, or a well-known axis that the trace lacks (size 1)
  Placement placement = Placement::kReplicate;
  bool mean = false;     // for kPartial: the sum is divided by the number of its terms
  std::int32_t dim = 0;  // for kShard; negative counts from the end
  // The name of a registered shard layout (base/layout.h); of a deduced placement of samples it may be words for people.
  std::string layout = "contiguous";
  LayoutOptions options;  // of the layout
  // The number of elements of the whole, behind which padding follows, or kReferenceExtent.
  std::optional<std::int64_t> unpadded;
  // Packed sequences: names of the recorded tensors that hold their cumulative lengths, without padding and
  // with it. The layout then holds for each sequence by itself. Empty where the dimension is one sequence.
  std::string cu_seqlens, cu_seqlens_padded;
  int line = 0;  // in the file, for messages; 0 for one that a trace carries
};
inline constexpr std::int64_t kReferenceExtent = -1;  // as many as the reference's tensor has

// A box of a recorded tensor, and the box of the same sizes that it is in a larger one.
struct Slice {
  Box local, whole;
  friend bool operator==(const Slice&, const Slice&) = default;
};

// A recorded tensor that is only a part of a larger one: of the rank's own tensor, which the axes place, or, where no
// axis splits it, of the logical tensor.
struct Fragment {
  Shape whole;                // the shape of the larger tensor
  std::vector<Slice> slices;  // empty where there is a `range`
  // [begin, end) of the elements of `whole` in row-major order, recorded as one dimension (ZeRO's flat
  // shards).
  struct Range {
    std::int64_t begin = 0, end = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::optional<Range> range;
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// Holds what the recording program knew of where a tensor lies: DTensor placements, ZeRO ownership, slices. It takes
// the place of an annotation. In the trace it is a JSON object; each key is optional:
//   {"axes": [{"axis": "tp", "size": 2, "placement": "shard", "dim": 0, "layout": "stacked", "blocks": [1, 1]},
//             {"axis": "dp", "size": 2, "placement": "replicate"}],   or "partial" or "mean"; outermost first
//    "shape": [8, 16],                              of the logical tensor
//    "fragment": {"whole": [8, 16], "range": [0, 64]}}
//   ... or {"whole": [8, 16], "slices": [{"local": [0, 0], "start": [4, 0], "size": [4, 16]}]}
// of at most 64 KiB, 1024 axes and 1024 slices. Sizes are 0 to 2^40; slices do not overlap in what was recorded.
struct RecordedMapping {
  struct Axis {
    AxisPlacement placement;
    std::int64_t size = 1;  // of the axis, as the program knew it
  };
  std::optional<std::vector<Axis>> axes;  // absent: annotations say how the axes split it
  std::optional<Shape> shape;
  std::optional<Fragment> fragment;
};

}  // namespace ttrace
