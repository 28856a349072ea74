// Whether a program splits the sequence, by the shapes of what rules split over `sp`.
#pragma once

#include <string>
#include <vector>

#include "identify/identity.h"

namespace ttrace {

// The aliases of the mesh, as far as the shapes of what rules split over sp agree. Presets are written for programs
// with and without sequence parallelism: where every tensor that a rule splits over sp is whole, there is none, and
// where the mesh lacks sp, and every one lies in parts on tp, sp is tp. Where they do not all say the same, the mesh is
// believed. What is not believed is noted.
Aliases aliases_by_shape(const Grouping& grouping, const RankTable& table, const ModelLayout& layout,
                         std::vector<std::string>& notes);

}  // namespace ttrace
