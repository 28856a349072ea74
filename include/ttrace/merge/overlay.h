// The merge is a view, not a copy: it lays the pieces of a reference tensor over those of a candidate
// tensor and gives the common boxes, with a pointer and strides for each term on each side. Nothing is
// materialised; the comparator reads the mapped shards in place.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// The elements of one piece inside one box: `data` is the first element, `strides` are in elements, one
// per dimension of the logical tensor.
struct StridedTerm {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  Shape strides;
  std::int32_t rank = 0;
  const Entry* entry = nullptr;      // the rank's tensor
  std::int64_t offset = 0;           // of the first element in it, in elements
  const MappedFile* file = nullptr;  // that holds `data`; may be null
};

// A box of the logical tensor that is one strided block on both sides. The value on a side is the sum of
// its terms, times `1 / scale`.
struct OverlayBox {
  Box logical;
  std::vector<StridedTerm> reference, candidate;
};

struct Overlay {
  std::vector<OverlayBox> boxes;  // replica 0 against replica 0; disjoint; cover the tensor
  // For every further replica of the candidate (of the reference: `reference_replicas`), the boxes that
  // lay it over the same side's replica 0 (`reference` = replica 0, `candidate` = the other).
  std::vector<std::vector<OverlayBox>> candidate_replicas, reference_replicas;
  double reference_scale = 1, candidate_scale = 1;
};

// The shapes must be equal; every element must be filled by replica 0 on both sides (align has shown it).
Overlay overlay(const LogicalTensor& reference, const LogicalTensor& candidate);

// Index in the rank's tensor of the element at `index` (counted from the box's start) of a term.
Shape local_index(const StridedTerm& term, const Shape& index);

// The part of `box` inside `within`; nothing when they share no element.
std::optional<OverlayBox> clip(const OverlayBox& box, const Box& within);

// `tensor` as the ranks of `replica` see it: that replica, and replica 0 where it holds nothing, as the
// only replica.
LogicalTensor seen_by_replica(const LogicalTensor& tensor, std::int32_t replica);

}  // namespace ttrace
