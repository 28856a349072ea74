// The `parallelism` section of an annotation file: what is not about one tensor.
#pragma once

#include <string_view>

#include "load/annotation_yaml.h"
#include "ttrace/annotation.h"

namespace ttrace {

inline constexpr std::string_view kParallelism = "parallelism";

// Takes what `section` says; each of its keys takes the place of what an included file says under that key. Throws
// InputError, `file:line: what`.
void read_parallelism(const annotation_yaml::Item& section, const annotation_yaml::Place& file,
                      Annotations& annotations);

}  // namespace ttrace
