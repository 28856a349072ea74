// The ranks of a trace and where they stand on its mesh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/finding.h"
#include "ttrace/mesh.h"
#include "ttrace/trace.h"

namespace ttrace {

using Place = std::vector<std::int64_t>;  // a coordinate for each axis of the mesh, in its order

struct PresentRank {
  const RankTrace* trace = nullptr;
  Place place;
};

struct RankTable {
  Mesh mesh;
  std::vector<PresentRank> ranks;     // by rank, each once: of a duplicate, the first
  std::vector<std::int32_t> rank_at;  // the rank at a place (see `linear`); -1 where nobody can tell
  std::vector<std::int32_t> missing;  // sorted
  std::vector<std::int32_t> crashed;  // sorted: present, without completion mark
  std::vector<Finding> findings;      // about the ranks
};

// Throws InputError when the mesh contradicts itself: sizes that do not multiply to the world size, a
// coordinate that is none, two ranks at one place.
RankTable ranks_of(const Trace& trace);

std::size_t linear(const RankTable& table, const Place& place);

// Index of the axis in the mesh, aliases resolved; -1 when it has none of that name.
int axis_index(const Mesh& mesh, const std::string& name);

// `rank 3 (tp=1, dp=1)`, and what is wrong with its file, if anything.
std::string describe_rank(const RankTable& table, const Place& place);

}  // namespace ttrace
