// Reads correspondence files: annotations/correspondences/README.md has the schema.
#pragma once

#include <filesystem>
#include <string>

#include "correspond/correspondence.h"

namespace ttrace {

// `name` is a path, or the name of one of the files that come with the program in the directory `presets`. Throws
// InputError, with `file:line`, for YAML that does not parse, unknown keys, and patterns that are none.
Correspondence read_correspondence(const std::string& name, const std::filesystem::path& presets);
Correspondence parse_correspondence(const std::string& text, const std::string& where);

}  // namespace ttrace
