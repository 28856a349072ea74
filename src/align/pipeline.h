// Stage-local layer numbers to global ones, by arithmetic on the coordinates.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "align/ranks.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

struct Pipeline {
  int axis = -1;       // in the mesh; -1 where nothing is renumbered: no rule, or one stage
  std::string layers;  // "decoder.layers"
  std::map<std::string, std::int64_t, std::less<>> per_stage;  // layers on a stage, by prefix
  std::set<std::string, std::less<>> spanning;  // modules that hold layers on several stages: "decoder", "(model)"
};

// The number of layers comes from the reference's layout; where that has no such layers, it is the sum of
// what the stages hold. Throws InputError when it does not divide by the number of stages.
Pipeline pipeline_of(const RankTable& table, const Annotations& annotations, const ModelLayout& layout);

// Index of the axis whose coordinates are pipeline stages, with a rule or without; -1 when there is none.
int stage_axis(const Mesh& mesh, const Annotations& annotations);

}  // namespace ttrace
