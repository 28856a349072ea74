// Reads annotation files: annotations/README.md has the schema.
#pragma once

#include <filesystem>
#include <string>

#include "ttrace/annotation.h"

namespace ttrace {

// Throws InputError with `file:line` for YAML that does not parse, unknown keys, values of the wrong type.
Annotations read_annotations(const std::filesystem::path& path);
Annotations parse_annotations(const std::string& text, const std::string& where);

}  // namespace ttrace
