#include "compare/tile.h"

#include <algorithm>
#include <iterator>

#include "compare/box.h"

namespace ttrace {
namespace {

Shape index_in(const Box& box, std::int64_t position) {
  Shape index = index_at(position, box.size);
  for (std::size_t d = 0; d < index.size(); ++d) index[d] += box.start[d];
  return index;
}

Difference difference_of(const BoxDifference& box, std::int32_t rank) {
  Difference part;
  part.elements = box.elements;
  part.differing = box.counts.differing;
  part.reference_nan = box.counts.reference_nan;
  part.reference_inf = box.counts.reference_inf;
  part.candidate_nan = box.counts.candidate_nan;
  part.candidate_inf = box.counts.candidate_inf;
  part.nonfinite_mismatch = box.counts.nonfinite_mismatch;
  part.reference_square = box.reference_square;
  part.candidate_square = box.candidate_square;
  part.difference_square = box.difference_square;
  part.along = box.along;
  part.reference_max_abs = box.reference_max_abs;
  part.square_by_rank[rank] = box.difference_square;
  if (box.counts.nonfinite_mismatch > 0) part.nonfinite_by_rank[rank] = box.counts.nonfinite_mismatch;
  return part;
}

void set_worst(Difference& difference, const OverlayBox& box, const WorstElement& worst) {
  const StridedTerm& holder = box.candidate.front();
  difference.max_abs = worst.max_abs;
  difference.worst_index = index_in(box.logical, worst.position);
  difference.worst_rank = holder.rank;
  difference.worst_local_index = local_index(holder, index_at(worst.position, box.logical.size));
  difference.worst_reference = worst.reference;
  difference.worst_candidate = worst.candidate;
}

// The row-major position, in a box of `sizes` and one more dimension, of the row that is `row` in the box `inside`,
// which starts `offset` later.
std::int64_t row_in(const Shape& sizes, const Shape& offset, const Shape& inside, std::int64_t row) {
  std::int64_t position = 0, stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0; row /= inside[d], stride *= sizes[d]) {
    position += (offset[d] + row % inside[d]) * stride;
  }
  return position;
}

Shape without_last(Shape shape) {
  shape.pop_back();
  return shape;
}

// Adds up the rows of a tile over the boxes in it, which may hold parts of rows.
class TileRows {
 public:
  explicit TileRows(const Box& tile)
      : tile_(tile), outer_(without_last(tile.size)), squares_(static_cast<std::size_t>(element_count(outer_))) {}

  void add(const Box& box, const std::vector<double>& squares) {
    Shape offset = without_last(box.start);
    for (std::size_t d = 0; d < offset.size(); ++d) offset[d] -= tile_.start[d];
    const Shape inside = without_last(box.size);
    for (std::size_t row = 0; row < squares.size(); ++row) {
      const std::int64_t at = row_in(outer_, offset, inside, static_cast<std::int64_t>(row));
      squares_[static_cast<std::size_t>(at)] += squares[row];
    }
  }

  // The first of the largest. Its row is counted in the whole tensor.
  RowPart largest(const Rows& rows) const {
    const auto found = std::max_element(squares_.begin(), squares_.end());
    return {row_in(rows.outer, without_last(tile_.start), outer_, found - squares_.begin()), *found};
  }

 private:
  const Box& tile_;
  Shape outer_;
  std::vector<double> squares_;
};

using Boxes = OpenTile::Boxes;

Boxes clip_all(const Boxes& boxes, const Box& tile) {
  Boxes inside;
  for (const OverlayBox& box : boxes) {
    if (auto clipped = clip(box, tile)) inside.push_back(std::move(*clipped));
  }
  return inside;
}

// Compares replica 0 with the reference. `boxes`: those of the overlay inside the tile.
void measure_first_replica(const Boxes& boxes, const Overlay& overlay, const Box& tile, const Rows& rows,
                           TileDifference& result) {
  struct Measured {
    const OverlayBox* box;
    LargestBlock largest;
  };
  std::vector<Measured> measured;
  Difference& total = result.difference;
  double largest = 0;
  std::optional<TileRows> tile_rows;
  if (rows.width > 0) tile_rows.emplace(tile);
  for (const OverlayBox& box : boxes) {
    const BoxDifference part = measure_box(box, overlay.reference_scale, overlay.candidate_scale,
                                           rows.width > 0 ? BoxRows::kYes : BoxRows::kNo);
    add_part(total, difference_of(part, box.candidate.front().rank));
    if (tile_rows) tile_rows->add(box.logical, part.row_squares);
    largest = std::max(largest, part.largest.difference);
    measured.push_back({&box, part.largest});
  }
  // The largest difference of the tile is known only now, and with it the boxes whose worst element must be found.
  for (const Measured& part : measured) {
    if (largest == 0 || part.largest.difference != largest) continue;
    Difference worst;
    set_worst(worst, *part.box, find_worst(*part.box, part.largest, overlay.reference_scale, overlay.candidate_scale));
    add_part(total, worst);
  }
  if (!tile_rows) return;
  const RowPart row = tile_rows->largest(rows);
  if (tile.size.back() == rows.width) {
    add_row(total, row);
  } else {
    result.part = row;  // a tile that cuts a row lies in it
  }
}

// Compares the further replicas of one side with its replica 0. Most have equal bytes, which memcmp tells fastest.
// Bytes may differ where values do not: there are two zeros and many NaN.
std::vector<ReplicaDifference> measure_replicas(const std::vector<Boxes>& replicas, double scale) {
  std::vector<ReplicaDifference> result(replicas.size());
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    for (const OverlayBox& box : replicas[i]) {
      if (same_bytes(box)) continue;
      const BoxDifference part = measure_box(box, scale, scale);
      if (part.counts.differing == 0) continue;
      ReplicaDifference disagreement{part.difference_square, {}};
      for (const StridedTerm& term : box.candidate) disagreement.ranks.push_back(term.rank);
      std::sort(disagreement.ranks.begin(), disagreement.ranks.end());
      add_part(result[i], disagreement);
    }
  }
  return result;
}

}  // namespace

std::vector<Box> tiles_of(const Shape& shape, std::int64_t elements) {
  // Cuts the outermost dimension whose inside fits in a tile, and steps through the dimensions outside of it.
  std::size_t cut = 0;
  std::int64_t inside = element_count(shape);
  if (inside == 0) return {};
  if (shape.empty()) return {Box{}};
  for (; cut < shape.size(); ++cut) {
    inside /= shape[cut];
    if (inside <= elements) break;
  }
  const std::int64_t step = std::clamp(elements / inside, std::int64_t{1}, shape[cut]);
  std::vector<Box> tiles;
  Box tile{Shape(shape.size(), 0), shape};
  for (std::size_t i = 0; i < cut; ++i) tile.size[i] = 1;
  while (tile.start[0] < shape[0]) {
    tile.size[cut] = std::min(step, shape[cut] - tile.start[cut]);
    tiles.push_back(tile);
    tile.start[cut] += step;
    for (std::size_t i = cut; i > 0 && tile.start[i] >= shape[i]; --i) {
      tile.start[i] = 0;
      ++tile.start[i - 1];
    }
  }
  return tiles;
}

Rows rows_of(const Shape& shape, Dtype dtype) {
  if (shape.size() < 2 || shape.back() < 2 || !is_floating(dtype)) return {};
  Rows rows{without_last(shape), shape.back()};
  return element_count(rows.outer) < 2 ? Rows() : rows;
}

OpenTile open_tile(const Overlay& overlay, const Box& tile, TileBuffer& buffer, ReadInPlace in_place) {
  OpenTile open{clip_all(overlay.boxes, tile), {}, {}, {}};
  for (const Boxes& boxes : overlay.candidate_replicas) open.candidate_replicas.push_back(clip_all(boxes, tile));
  for (const Boxes& boxes : overlay.reference_replicas) open.reference_replicas.push_back(clip_all(boxes, tile));
  std::vector<OverlayBox*> all;
  for (OverlayBox& box : open.boxes) all.push_back(&box);
  for (auto* replicas : {&open.candidate_replicas, &open.reference_replicas}) {
    for (Boxes& boxes : *replicas) {
      for (OverlayBox& box : boxes) all.push_back(&box);
    }
  }
  open.read = fetch(all, buffer, in_place);
  return open;
}

TileDifference measure_tile(const OpenTile& open, const Overlay& overlay, const Box& tile, const Rows& rows) {
  TileDifference result;
  measure_first_replica(open.boxes, overlay, tile, rows, result);
  result.candidate_replicas = measure_replicas(open.candidate_replicas, overlay.candidate_scale);
  result.reference_replicas = measure_replicas(open.reference_replicas, overlay.reference_scale);
  return result;
}

void add_part(Difference& total, const Difference& part) {
  total.elements += part.elements;
  total.differing += part.differing;
  total.reference_nan += part.reference_nan;
  total.reference_inf += part.reference_inf;
  total.candidate_nan += part.candidate_nan;
  total.candidate_inf += part.candidate_inf;
  total.nonfinite_mismatch += part.nonfinite_mismatch;
  total.reference_square += part.reference_square;
  total.candidate_square += part.candidate_square;
  total.difference_square += part.difference_square;
  total.along += part.along;
  total.reference_max_abs = std::max(total.reference_max_abs, part.reference_max_abs);
  for (const auto& [rank, square] : part.square_by_rank) total.square_by_rank[rank] += square;
  for (const auto& [rank, count] : part.nonfinite_by_rank) total.nonfinite_by_rank[rank] += count;
  if (part.worst_row >= 0) add_row(total, {part.worst_row, part.row_square});
  const bool worse = part.max_abs > total.max_abs ||
                     (part.max_abs > 0 && part.max_abs == total.max_abs && part.worst_index < total.worst_index);
  if (!worse) return;
  total.max_abs = part.max_abs;
  total.worst_index = part.worst_index;
  total.worst_rank = part.worst_rank;
  total.worst_local_index = part.worst_local_index;
  total.worst_reference = part.worst_reference;
  total.worst_candidate = part.worst_candidate;
}

void add_row(Difference& total, const RowPart& row) {
  if (row.square == 0 || row.square < total.row_square) return;
  if (row.square == total.row_square && total.worst_row >= 0 && total.worst_row < row.row) return;
  total.row_square = row.square;
  total.worst_row = row.row;
}

void add_part(ReplicaDifference& total, const ReplicaDifference& part) {
  total.square += part.square;
  std::vector<std::int32_t> ranks;
  std::set_union(total.ranks.begin(), total.ranks.end(), part.ranks.begin(), part.ranks.end(),
                 std::back_inserter(ranks));
  total.ranks = std::move(ranks);
}

}  // namespace ttrace
