#include "align/pieces.h"

#include <algorithm>
#include <tuple>

namespace ttrace {
namespace {

// What one holder's box of the rank's own tensor is in the logical tensor.
void add_pieces(const Plan& plan, const HeldShard& holder, const HeldBox& held, std::int64_t shard,
                std::int64_t replica, std::int64_t term, std::vector<Piece>& pieces) {
  for (PlacedBox& box : boxes_of(plan.dimensions, digits_of(plan.frame, shard), held.box)) {
    Piece& piece = pieces.emplace_back();
    piece.rank = holder.rank->rank;
    piece.entry = holder.entry;
    piece.data = holder.rank->bytes_of(*holder.entry);
    piece.file = holder.rank->file.get();
    piece.offset = held.offset;
    for (std::size_t d = 0; d < box.local.start.size(); ++d) {
      piece.offset += (box.local.start[d] - held.box.start[d]) * held.strides[d];
    }
    piece.strides = held.strides;
    piece.logical = std::move(box.logical);
    const std::int64_t copy = box.copy;
    piece.replica = static_cast<std::int32_t>(replica + (plan.copies_are_terms ? 0 : copy * plan.frame.replicas()));
    piece.term = static_cast<std::int32_t>(term + (plan.copies_are_terms ? copy * plan.frame.terms : 0));
  }
}

}  // namespace

void sort_pieces(std::vector<Piece>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.replica, a.term, a.logical.start) < std::tie(b.replica, b.term, b.logical.start);
  });
}

std::vector<LayeredBox> layer_fragments(const Plan& plan, std::int64_t term, std::int64_t shard) {
  std::vector<std::vector<HeldBox>> held;
  for (std::int64_t replica = 0; replica < plan.frame.replicas(); ++replica) {
    const HeldShard& holder = plan.shards[static_cast<std::size_t>(plan.frame.slot(replica, term, shard))];
    held.push_back(holder.entry == nullptr ? std::vector<HeldBox>{} : held_boxes(*holder.entry));
  }
  return layer_boxes(shard_shape(plan, shard), held);
}

Shape shard_shape(const Plan& plan, std::int64_t shard) {
  const std::vector<std::int64_t> digits = digits_of(plan.frame, shard);
  Shape shape;
  for (const Dimension& dimension : plan.dimensions) shape.push_back(dimension.sizes[part_of(dimension, digits)]);
  return shape;
}

std::vector<Piece> make_pieces(const Plan& plan) {
  std::vector<Piece> pieces;
  const Frame& frame = plan.frame;
  for (std::int64_t slot = 0; slot < frame.slots() && !plan.fragments; ++slot) {
    const HeldShard& holder = plan.shards[static_cast<std::size_t>(slot)];
    for (const HeldBox& held : held_boxes(*holder.entry)) {
      add_pieces(plan, holder, held, slot % frame.shards, frame.replica_of(slot), frame.term_of(slot), pieces);
    }
  }
  for (std::int64_t i = 0; i < frame.terms * frame.shards && plan.fragments; ++i) {
    const std::int64_t term = i / frame.shards, shard = i % frame.shards;
    for (const LayeredBox& box : layer_fragments(plan, term, shard)) {
      const auto slot = frame.slot(static_cast<std::int64_t>(box.holder), term, shard);
      add_pieces(plan, plan.shards[static_cast<std::size_t>(slot)], box.held, shard, box.layer, term, pieces);
    }
  }
  sort_pieces(pieces);
  return pieces;
}

}  // namespace ttrace
