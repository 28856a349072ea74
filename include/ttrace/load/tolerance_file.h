// Reads and writes tolerance files: YAML, one line a tensor, so that a diff shows what moved.
#pragma once

#include <filesystem>
#include <string>

#include "ttrace/tolerance/tolerance.h"

namespace ttrace {

// Throws InputError with `file:line`.
ToleranceFile read_tolerances(const std::filesystem::path& path);
ToleranceFile parse_tolerances(const std::string& text, const std::string& where);
std::string to_yaml(const ToleranceFile& file);  // parses back to the same values

}  // namespace ttrace
