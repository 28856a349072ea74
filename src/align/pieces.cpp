#include "align/pieces.h"

#include <algorithm>
#include <tuple>

namespace ttrace {
namespace {

// Adds the pieces that one box of a rank's own tensor makes up in the logical tensor.
void add_pieces(const ShardGrid& grid, const HeldShard& holder, const HeldBox& held, std::int64_t shard,
                std::int64_t replica, std::int64_t term, std::vector<Piece>& pieces) {
  for (PlacedBox& box : boxes_of(*grid.dimensions, digits_of(*grid.dimensions, shard), held.box)) {
    Piece& piece = pieces.emplace_back();
    piece.rank = holder.rank->rank;
    piece.entry = holder.entry;
    piece.data = holder.rank->stored_bytes_of(*holder.entry);
    piece.file = holder.rank->file.get();
    piece.offset = held.offset;
    for (std::size_t d = 0; d < box.local.start.size(); ++d) {
      piece.offset += (box.local.start[d] - held.box.start[d]) * held.strides[d];
    }
    piece.strides = held.strides;
    piece.logical = std::move(box.logical);
    const std::int64_t occurrence = box.occurrence;
    piece.replica =
        static_cast<std::int32_t>(replica + (grid.occurrences_are_terms ? 0 : occurrence * grid.slots.replicas));
    piece.term = static_cast<std::int32_t>(term + (grid.occurrences_are_terms ? occurrence * grid.slots.terms : 0));
  }
}

}  // namespace

void sort_pieces(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.replica, a.term, a.logical.start) < std::tie(b.replica, b.term, b.logical.start);
  });
}

std::vector<LayeredBox> layer_fragments(const ShardGrid& grid, std::int64_t term, std::int64_t shard) {
  std::vector<std::vector<HeldBox>> held;
  for (std::int64_t replica = 0; replica < grid.slots.replicas; ++replica) {
    const HeldShard& holder = grid.shards[static_cast<std::size_t>(grid.slots.slot(replica, term, shard))];
    held.push_back(holder.entry == nullptr ? std::vector<HeldBox>{} : held_boxes(*holder.entry));
  }
  return layer_boxes(shard_shape(grid, shard), held);
}

Shape shard_shape(const ShardGrid& grid, std::int64_t shard) {
  const std::vector<std::int64_t> digits = digits_of(*grid.dimensions, shard);
  Shape shape;
  for (const Dimension& dimension : *grid.dimensions) shape.push_back(dimension.sizes[part_index(dimension, digits)]);
  return shape;
}

std::vector<Piece> make_pieces(const ShardGrid& grid) {
  std::vector<Piece> pieces;
  const Slots& slots = grid.slots;
  for (std::int64_t slot = 0; slot < slots.size() && !grid.fragments; ++slot) {
    const HeldShard& holder = grid.shards[static_cast<std::size_t>(slot)];
    for (const HeldBox& held : held_boxes(*holder.entry)) {
      add_pieces(grid, holder, held, slots.shard_of(slot), slots.replica_of(slot), slots.term_of(slot), pieces);
    }
  }
  for (std::int64_t i = 0; i < slots.terms * slots.shards && grid.fragments; ++i) {
    const std::int64_t term = i / slots.shards, shard = i % slots.shards;
    for (const LayeredBox& box : layer_fragments(grid, term, shard)) {
      const auto slot = slots.slot(static_cast<std::int64_t>(box.holder), term, shard);
      add_pieces(grid, grid.shards[static_cast<std::size_t>(slot)], box.held, shard, box.layer, term, pieces);
    }
  }
  sort_pieces(pieces);
  return pieces;
}

}  // namespace ttrace
