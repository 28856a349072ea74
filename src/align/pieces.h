// The pieces of a logical tensor, made from its shards and its dimensions when they are asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "align/dimension.h"
#include "align/fragment.h"
#include "align/frame.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

struct HeldShard {
  const RankTrace* rank = nullptr;
  const Entry* entry = nullptr;  // null where the slot is empty
};

// Everything that a tensor's pieces follow from.
struct Plan {
  Frame frame;
  std::vector<HeldShard> shards;  // by slot
  std::vector<Dimension> dimensions;
  bool fragments = false;         // the replicas of a shard may each hold a part of it
  bool copies_are_terms = false;  // of a gradient; else they are replicas
};

// The layered boxes of shard `shard` of term `term`, whose holders are replicas.
std::vector<LayeredBox> layer_fragments(const Plan& plan, std::int64_t term, std::int64_t shard);

// The shape of the rank's own tensor at a shard's place.
Shape shard_shape(const Plan& plan, std::int64_t shard);

void sort_pieces(std::vector<Piece>& pieces);  // by replica, term, logical start

// Sorted.
std::vector<Piece> make_pieces(const Plan& plan);

}  // namespace ttrace
