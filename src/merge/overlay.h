// The merge copies nothing. It lays the pieces of a reference tensor over those of a candidate tensor and gives the
// boxes that they have in common, with a pointer into the mapped shards and strides for each term on each side.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// The elements of one piece inside one box. `data` points to the first element; there is one stride for each dimension
// of the logical tensor, in elements.
struct StridedTerm {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  Shape strides;
  std::int32_t rank = 0;
  const Entry* entry = nullptr;      // the rank's tensor
  std::int64_t offset = 0;           // of the first element in `entry`, in elements
  const MappedFile* file = nullptr;  // the file that holds `data`; may be null
};

// A box of the logical tensor that is one strided block on both sides. The value on a side is the sum of
// its terms, times `1 / scale`.
struct OverlayBox {
  Box logical;
  std::vector<StridedTerm> reference, candidate;
};

struct Overlay {
  std::vector<OverlayBox> boxes;  // replica 0 against replica 0; they share no element and cover the tensor
  // Holds, for every further replica of a side, the boxes that lay it over replica 0 of the same side: their
  // `reference` is replica 0, their `candidate` the other replica.
  std::vector<std::vector<OverlayBox>> candidate_replicas, reference_replicas;
  double reference_scale = 1, candidate_scale = 1;
};

// The shapes must be equal; every element must be filled by replica 0 on both sides (align has shown it).
Overlay overlay(const LogicalTensor& reference, const LogicalTensor& candidate);

// The index, in the rank's tensor, of the term's element at `index`, which counts from the start of the box.
Shape local_index(const StridedTerm& term, const Shape& index);

// The part of `box` inside `within`; nothing when they share no element.
std::optional<OverlayBox> clip(const OverlayBox& box, const Box& within);

// `tensor` as the ranks of `replica` see it. The result has one replica: `replica`, completed by replica 0 where it
// holds nothing.
LogicalTensor seen_by_replica(const LogicalTensor& tensor, std::int32_t replica);

}  // namespace ttrace
