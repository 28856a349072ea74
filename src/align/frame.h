// The index space of one logical tensor's shards: which places on the mesh should hold one, and as which
// replica, which term and which shard.
#pragma once

#include <cstdint>
#include <vector>

#include "align/identity.h"

namespace ttrace {

// One axis of the mesh (-1: none, size 1), as a digit of an index.
struct Digit {
  int axis = -1;
  std::int64_t size = 1;
};

// Slots are numbered by replica, then term, then shard; the replicas by stage, then by the axes that
// replicate.
struct Frame {
  Place base;                                    // the coordinates that all slots share: the micro-batch axis's
  int stage_axis = -1;                           // where the tensor need only be on some stages
  std::vector<std::int64_t> stages;              // those that hold it, sorted; {0} without a stage axis
  std::vector<Digit> replicate, partial, shard;  // outermost first
  std::int64_t replicas_per_stage = 1, terms = 1, shards = 1;

  std::int64_t replicas() const { return replicas_per_stage * static_cast<std::int64_t>(stages.size()); }
  std::int64_t slots() const { return replicas() * terms * shards; }
  std::int64_t slot(std::int64_t of_replica, std::int64_t of_term, std::int64_t of_shard) const {
    return (of_replica * terms + of_term) * shards + of_shard;
  }
  std::int64_t replica_of(std::int64_t slot) const { return slot / shards / terms; }
  std::int64_t term_of(std::int64_t slot) const { return slot / shards % terms; }
};

// The axes of stages and micro-batches are indexes into the mesh, -1 where it has none. The group has at
// least one shard.
Frame frame_of(const Group& group, const Mesh& mesh, int stage_axis, int microbatch_axis);

std::int64_t slot_of(const Frame& frame, const Place& place);
Place place_of(const Frame& frame, std::int64_t slot);

}  // namespace ttrace
