// Writes text into files.
#pragma once

#include <filesystem>
#include <ostream>
#include <string_view>

namespace ttrace {

// Writes `text` to the file, in place of what it held. Throws InputError where it cannot be written.
void write_file(const std::filesystem::path& path, std::string_view text);

// Does the same for a file that is open; `path` is for the message.
void write_text(std::ostream& stream, const std::filesystem::path& path, std::string_view text);

}  // namespace ttrace
