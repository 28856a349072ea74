// Maps files into memory.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "ttrace/trace.h"

namespace ttrace {

// Maps a regular file read-only. Throws InputError.
std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path);

inline std::string_view mapped_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

}  // namespace ttrace
