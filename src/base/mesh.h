// The mesh of ranks: named axes and a rank's coordinates on them.
//
// Experts are often spread over the same ranks in another way than all else: `tp * dp` ranks are `etp * ep * edp` as
// well. A mesh therefore has one or several factorings. An axis that two of them name, such as pp, is the same axis.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct Axis {
  std::string name;
  std::int64_t size = 1;
  friend bool operator==(const Axis&, const Axis&) = default;
};
// One factoring of the ranks, in rank order, fastest first: rank = c0 + size0 * (c1 + size1 * (c2 + ...)).
using Axes = std::vector<Axis>;
// Names that share another axis's coordinate: sequence parallelism (`sp`) uses the ranks of `tp`.
using Aliases = std::map<std::string, std::string>;
using Coordinates = std::map<std::string, std::int64_t>;  // by axis name

struct Mesh {
  Axes axes;
  Aliases aliases{};
  std::vector<Axes> further_factorings{};  // of the same ranks, beside `axes`
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// A lower-case letter, then lower-case letters, digits and '_'.
bool is_axis_name(std::string_view text);

// Parses `tp=2,dp=2,sp=tp`: sizes in rank order, fastest first (rank = tp + 2 * dp here); a name instead
// of a size makes an alias. A `/` begins a further factoring: `tp=2,dp=2/etp=1,ep=2,edp=2`. Throws
// InputError (`where` says what held the text) for anything else, where the sizes of a factoring do not
// multiply to `world_size`, and where an axis that two of them have is not the same in both. Empty text: no
// axes, which fits one rank only.
Mesh parse_mesh(std::string_view text, std::int32_t world_size, std::string_view where);

// The number of ranks that such a text is for: the product of the sizes in its first factoring. A size that makes no
// sense counts as 1; parse_mesh refuses it.
std::int32_t ranks_of_mesh(std::string_view text);

std::string to_string(const Mesh& mesh);  // the text that parses to it
std::string to_string(const Axes& axes);  // `tp=2,dp=2`

// The coordinates that the rank order gives a rank, on the axes of one factoring or of all.
Coordinates coordinates_of(const Axes& axes, std::int32_t rank);
Coordinates coordinates_of(const Mesh& mesh, std::int32_t rank);

// `mesh.axes`, then the further factorings.
std::vector<Axes> factorings_of(const Mesh& mesh);

// The axes of all factorings, each once, in that order.
Axes all_axes(const Mesh& mesh);

// The size of `axis`, which may be an alias; 1 for an axis that the mesh lacks.
std::int64_t size_of_axis(const Mesh& mesh, const std::string& axis);

}  // namespace ttrace
