// Writes text into files.
#pragma once

#include <filesystem>
#include <string_view>

namespace ttrace {

// Writes `text` to the file, in place of what it held, which stays where the new cannot be written whole. Throws
// InputError.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace ttrace
