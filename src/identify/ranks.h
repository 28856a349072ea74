// The ranks of a trace and their coordinates on its mesh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/finding.h"
#include "base/mesh.h"
#include "base/trace.h"

namespace ttrace {

// One coordinate for each of the rank table's axes, in their order.
using AxisCoordinates = std::vector<std::int64_t>;

struct PresentRank {
  const RankTrace* trace = nullptr;
  AxisCoordinates coordinates;
};

// One factoring of the ranks. Each combination of coordinates on its axes belongs to exactly one rank.
struct Factoring {
  std::vector<std::size_t> axes;      // indexes into the table's axes, fastest first
  std::vector<std::int32_t> rank_at;  // by the linear index of the coordinates; -1 where the rank cannot be told
};

struct RankTable {
  Mesh mesh;
  Axes axes;                          // of all factorings, each once
  std::vector<Factoring> factorings;  // in the order of `factorings_of` the mesh
  std::vector<PresentRank> ranks;     // by rank; of duplicates only the first
  std::vector<std::int32_t> missing;  // sorted
  std::vector<std::int32_t> crashed;  // sorted: ranks that did not record all
  std::vector<Finding> findings;      // about the ranks
};

// Missing, crashed and duplicate ranks are findings. Throws InputError when the mesh contradicts itself: the sizes do
// not multiply to the world size, a coordinate lies outside its axis, or two ranks have the same coordinates.
RankTable rank_table_of(const Trace& trace);

// The rank that has these coordinates on the factoring's axes; -1 where it cannot be told.
// `coordinates` has one for each axis of the table.
std::int32_t rank_at(const RankTable& table, const Factoring& factoring, const AxisCoordinates& coordinates);

// The rank's coordinate on an axis of the table; 0 for the axis -1, which the mesh lacks.
std::int64_t coordinate_on(const PresentRank& rank, int axis);

// As `factorings_of`, with the axes as indexes into `all_axes`.
std::vector<std::vector<std::size_t>> indexed_factorings_of(const Mesh& mesh);

// True when the axis is one of the factoring's.
bool has_axis(const std::vector<std::size_t>& factoring, int axis);

// `rank 3 (tp=1, dp=1)`; it also says when the rank's file is missing or incomplete.
std::string describe_rank(const RankTable& table, const Factoring& factoring, const AxisCoordinates& coordinates);

}  // namespace ttrace
