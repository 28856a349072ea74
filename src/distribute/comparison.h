// Compares pairs of tensors with all processes of a team. A process that is given some pairs is told where their pieces
// lie, and maps the files itself.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compare/compare.h"
#include "distribute/recorded.h"
#include "team/team.h"

namespace ttrace {

// Compares as `compare` of one process does, with the same bits for any number of processes. The pieces must lie in
// mapped files.
std::vector<Difference> compare(std::span<const TensorPair> pairs, const CompareOptions& options, Team& team);

// The worker of Work::kCompare.
std::string answer_comparison(std::string_view request, SharedFiles& files);

}  // namespace ttrace
