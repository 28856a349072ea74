// Reads the section `parallelism` of an annotation file, which is about the whole model and not about one tensor.
#pragma once

#include <string_view>

#include "base/annotation.h"
#include "files/annotation_yaml.h"

namespace ttrace {

inline constexpr std::string_view kParallelism = "parallelism";

// Adds the section to `annotations`; each of its keys replaces what an included file says under that key. Throws
// InputError, `file:line: what`.
void read_parallelism(const annotation_yaml::Item& section, const annotation_yaml::Context& file,
                      Annotations& annotations);

// The same for one key of it.
void read_parallelism_key(const annotation_yaml::Item& item, const annotation_yaml::Context& file,
                          Annotations& annotations);

}  // namespace ttrace
