// The ranks of a trace and where they stand on its mesh.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ttrace/finding.h"
#include "ttrace/mesh.h"
#include "ttrace/trace.h"

namespace ttrace {

using Place = std::vector<std::int64_t>;  // a coordinate for each of the table's axes, in their order

struct PresentRank {
  const RankTrace* trace = nullptr;
  Place place;
};

// One factoring of the ranks: its places and the ranks are in one-to-one correspondence.
struct View {
  std::vector<std::size_t> axes;      // indexes into the table's axes, fastest first
  std::vector<std::int32_t> rank_at;  // by linear place; -1 where nobody can tell
};

struct RankTable {
  Mesh mesh;
  Axes axes;                          // of all views
  std::vector<View> views;            // the mesh's own axes first
  std::vector<PresentRank> ranks;     // by rank, each once: of a duplicate, the first
  std::vector<std::int32_t> missing;  // sorted
  std::vector<std::int32_t> crashed;  // sorted: present, without completion mark
  std::vector<Finding> findings;      // about the ranks
};

// Throws InputError when the mesh contradicts itself: sizes that do not multiply to the world size, a
// coordinate that is none, two ranks at one place.
RankTable ranks_of(const Trace& trace);

// Who stands at a place, as far as the view's axes go; -1 where nobody can tell.
std::int32_t rank_at(const RankTable& table, const View& view, const Place& place);

// Index of the axis in `all_axes`, aliases resolved; -1 when it has none of that name.
int axis_index(const Mesh& mesh, const std::string& name);

// `factorings_of` the mesh as indexes into `all_axes`.
std::vector<std::vector<std::size_t>> indexed_factorings_of(const Mesh& mesh);

// True when the axis is one of the factoring's.
bool has_axis(const std::vector<std::size_t>& factoring, int axis);

// `rank 3 (tp=1, dp=1)`, and what is wrong with its file, if anything.
std::string describe_rank(const RankTable& table, const View& view, const Place& place);

}  // namespace ttrace
