// The shards of a logical tensor in their slots, and the pieces that they are made into when somebody asks for them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "align/dimension.h"
#include "align/fragment.h"
#include "align/frame.h"
#include "base/alignment.h"

namespace ttrace {

struct HeldShard {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;  // null where the slot is empty
};

// The shards of one logical tensor, each in its slot, and the dimensions that they make up. The pieces follow from it.
struct ShardGrid {
  Slots slots;
  std::vector<HeldShard> shards;                             // one for each slot
  std::shared_ptr<const std::vector<Dimension>> dimensions;  // laid out
  bool fragments = false;  // some entries are fragments: the replicas of a shard may each hold a part of it
  // Several parts of a dimension may hold the same element. Its occurrences are terms of a gradient, and replicas of
  // any other tensor.
  bool occurrences_are_terms = false;
};

// The boxes that the replicas hold of one shard of one term, in layers. A box's holder is the index of the replica.
std::vector<LayeredBox> layer_fragments(const ShardGrid& grid, std::int64_t term, std::int64_t shard);

// The shape of the rank's own tensor in the slots of this shard.
Shape shard_shape(const ShardGrid& grid, std::int64_t shard);

void sort_pieces(std::vector<Piece>& pieces);  // by replica, term, logical start

// Sorted.
std::vector<Piece> make_pieces(const ShardGrid& grid);

}  // namespace ttrace
