// A tile is a box of the logical tensor, cut without regard to shards: about 1 MiB a side, so that it stays in cache
// while its checksums are taken and replicas are compared with it. Tiles are the unit of parallel work and of
// summation: their borders, and with them every sum, depend on the tensors alone, not on threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/finding.h"
#include "compare/tile_bytes.h"
#include "merge/overlay.h"

namespace ttrace {

// Cuts a tensor into tiles of about `elements` elements, in row-major order. A scalar has one tile, a tensor without
// elements none.
std::vector<Box> tiles_of(const Shape& shape, std::int64_t elements);

struct ReplicaDifference {
  double square = 0;                // ||replica - replica 0||^2
  std::vector<std::int32_t> ranks;  // ascending; empty when all values agree
};

// Says how a tensor is cut into rows (`Difference::rows`): it has none where `width` is 0.
struct Rows {
  Shape outer;  // the shape without the last dimension
  std::int64_t width = 0;
};
Rows rows_of(const Shape& shape, Dtype dtype);

// A part of a row that is longer than a tile.
struct RowPart {
  std::int64_t row;  // row-major
  double square;     // of the differences
};

struct TileDifference {
  Difference difference;        // of replica 0; the replica fields are left for the whole tensor
  std::optional<RowPart> part;  // what the tile holds of a row, where that is a part of one
  std::vector<ReplicaDifference> candidate_replicas, reference_replicas;  // as in Overlay
};

// An overlay inside a tile, with the bytes that it needs at hand.
struct OpenTile {
  using Boxes = std::vector<OverlayBox>;
  Boxes boxes;
  std::vector<Boxes> candidate_replicas, reference_replicas;
  std::vector<ReadRange> read;
};
OpenTile open_tile(const Overlay& overlay, const Box& tile, TileBuffer& buffer, ReadInPlace in_place);
TileDifference measure_tile(const OpenTile& open, const Overlay& overlay, const Box& tile, const Rows& rows);

// Adds `part`, whose elements come after those of `total` or lie among them, to `total`.
void add_part(Difference& total, const Difference& part);

// Takes note of a whole row.
void add_row(Difference& total, const RowPart& row);
void add_part(ReplicaDifference& total, const ReplicaDifference& part);

}  // namespace ttrace
