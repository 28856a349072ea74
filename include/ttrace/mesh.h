// The mesh of ranks: named axes and a rank's coordinates on them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ttrace/trace.h"

namespace ttrace {

struct Mesh {
  Axes axes;  // fastest first
  Aliases aliases;
};

// A lower-case letter, then lower-case letters, digits and '_'.
bool is_axis_name(std::string_view text);

// Parses `tp=2,dp=2,sp=tp`: sizes in rank order, fastest first (rank = tp + 2 * dp here); a name instead
// of a size makes an alias. Throws InputError (`where` says what held the text) for anything else, and
// where the sizes do not multiply to `world_size`. Empty text: no axes, which fits one rank only.
Mesh parse_mesh(std::string_view text, std::int32_t world_size, std::string_view where);
std::string to_string(const Mesh& mesh);  // the text that parses to it

Coordinates coordinates_of(const Axes& axes, std::int32_t rank);

// Size of `axis` or of what it is an alias of; 1 for an axis that the mesh lacks.
std::int64_t size_of_axis(const Mesh& mesh, const std::string& axis);

}  // namespace ttrace
