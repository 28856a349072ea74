// The index space of one logical tensor's shards: which places on the mesh should hold one, and as which
// replica, which term and which shard.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "align/identity.h"

namespace ttrace {

// One axis of the mesh (-1: none, size 1), as a digit of an index.
struct Digit {
  int axis = -1;
  std::int64_t size = 1;
};

// One term of a sum. Sums run over the axes that are partial and, where the rule says so, over the micro-batches and
// over a tied parameter's copies.
struct Term {
  std::size_t copy = 0;
  std::int64_t part = 0;  // index of the partial digits
  std::int32_t microbatch = 0;
  friend auto operator<=>(const Term&, const Term&) = default;
};

// Where one tensor need only be on some stages, those that hold it count; so it is with the micro-batches of a sum. A
// term of which no rank holds anything adds nothing; but each part of an axis must have one.
//
// Slots are numbered by replica, then term, then shard; the replicas by copy, then by the axes that replicate.
struct Frame {
  std::size_t view = 0;                          // whose axes the digits are
  Place base;                                    // the coordinates that all slots share: the micro-batch axis's
  int stage_axis = -1;                           // where the copies lie along one
  std::int64_t stages = 1;                       // on it
  std::vector<Copy> copies;                      // sorted
  bool sum_copies = false;                       // they are terms, not replicas
  std::vector<Digit> replicate, partial, shard;  // outermost first
  std::vector<Term> sum;                         // its terms, sorted
  std::int64_t replicas_per_copy = 1, terms = 1, shards = 1;

  std::int64_t replicas() const {
    return replicas_per_copy * (sum_copies ? 1 : static_cast<std::int64_t>(copies.size()));
  }
  std::int64_t slots() const { return replicas() * terms * shards; }
  std::int64_t slot(std::int64_t of_replica, std::int64_t of_term, std::int64_t of_shard) const {
    return (of_replica * terms + of_term) * shards + of_shard;
  }
  std::int64_t replica_of(std::int64_t slot) const { return slot / shards / terms; }
  std::int64_t term_of(std::int64_t slot) const { return slot / shards % terms; }
};

// What is not the same in all tensors' frames: where pipelines, micro-batches and experts make a difference. Axes are
// indexes into the table's, -1 where it has none.
struct FrameAxes {
  int stage = -1, microbatch = -1, expert = -1;
};

// The group has at least one shard.
Frame frame_of(const Group& group, const RankTable& table, const FrameAxes& axes);

std::int64_t slot_of(const Frame& frame, const Shard& shard);
Place place_of(const Frame& frame, std::int64_t slot);

}  // namespace ttrace
