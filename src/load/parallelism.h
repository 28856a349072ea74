// The `parallelism` section of an annotation file: what is not about one tensor.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string_view>

#include "ttrace/annotation.h"

namespace ttrace {

inline constexpr std::string_view kParallelism = "parallelism";  // the one top-level key that is not a pattern

// Adds what `node` says, which stands at `line`. Throws InputError, `file:line: what`.
void read_parallelism(const YAML::Node& node, int line, Annotations& annotations);

}  // namespace ttrace
