// The frame of one logical tensor: the slots that its shards should fill. A slot is a replica, a term and a shard; the
// coordinates of a rank tell which slot its shard fills.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "identify/identity.h"

namespace ttrace {

// One axis, as a digit of a mixed-radix index. Axis -1 is one that the mesh lacks; its size is 1.
struct Digit {
  int axis = -1;
  std::int64_t size = 1;
};

// One term of a sum. Sums run over the axes that are partial, over the occurrences of a tied parameter's gradient and,
// where the rule says so, over the micro-batches.
struct Term {
  std::size_t occurrence = 0;   // index into the frame's occurrences
  std::int64_t part = 0;        // index made of the partial digits
  std::int32_t microbatch = 0;  // the rank's own number
  friend auto operator<=>(const Term&, const Term&) = default;
};

// The slots of one tensor, numbered by replica, then term, then shard; replicas by occurrence, then by the axes that
// replicate.
struct Slots {
  std::int64_t replicas = 1, terms = 1, shards = 1;

  std::int64_t size() const { return replicas * terms * shards; }
  std::int64_t slot(std::int64_t of_replica, std::int64_t of_term, std::int64_t of_shard) const {
    return (of_replica * terms + of_term) * shards + of_shard;
  }
  std::int64_t replica_of(std::int64_t slot) const { return slot / shards / terms; }
  std::int64_t term_of(std::int64_t slot) const { return slot / shards % terms; }
  std::int64_t shard_of(std::int64_t slot) const { return slot % shards; }
};

// Not every rank must hold every tensor. Of the pipeline stages only those that hold the tensor get slots, and of the
// micro-batches of a sum only those that some rank has recorded: the others add nothing to it. The coordinates of a
// partial axis, however, all have slots, so that a rank that recorded nothing is found to be missing.
struct Frame {
  std::size_t factoring = 0;                     // whose axes the digits are: an index into the table's factorings
  AxisCoordinates base;                          // of one shard; all slots share those on axes without a digit
  int stage_axis = -1;                           // the pipeline's, where it tells occurrences apart; else -1
  std::int64_t stages = 1;                       // the size of that axis
  std::vector<Occurrence> occurrences;           // sorted
  bool sum_occurrences = false;                  // the occurrences are terms, not replicas
  std::vector<Digit> replicate, partial, shard;  // outermost first
  std::vector<Term> sum;                         // the terms, sorted
  std::int64_t replicas_per_occurrence = 1;
  Slots slots;
};

// The axes that some tensors treat in a way of their own: those of the pipeline stages, of the micro-batches and of the
// experts. They are indexes into the table's axes, -1 where it has no such axis.
struct FrameAxes {
  int stage = -1, expert = -1;
  std::vector<int> microbatches = {};  // outermost first
};

// `group` has at least one shard.
Frame frame_of(const Group& group, const RankTable& table, const FrameAxes& axes);

std::int64_t slot_of(const Frame& frame, const Shard& shard);

// The coordinates of the rank that should fill the slot.
AxisCoordinates coordinates_at(const Frame& frame, std::int64_t slot);

}  // namespace ttrace
