// Maps files into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Maps a regular file read-only. Throws InputError, also for a symbolic link.
std::shared_ptr<const MappedFile> map_file(const std::filesystem::path& path);

struct FileRange {
  std::uint64_t begin = 0, size = 0;
};

// Maps regular files read-only, one behind the other as if they were one file: `ranges` gets where each lies. Between
// two are the zeros that fill a page. Throws InputError as `map_file` does, and for an empty file.
std::shared_ptr<const MappedFile> map_files(const std::vector<std::filesystem::path>& paths,
                                            std::vector<FileRange>& ranges);

// Throws InputError where a mapped file was written to since it was mapped: what was read of it may be of two versions.
void require_unchanged_files();

// Tells what a path holds from what it held before, or holds on another machine: by size and time of the last change.
// Empty for a file that is not mapped.
std::string version_of(const MappedFile& file);

// Throws InputError where this process does not see the version of the file that another one saw.
void require_version(const MappedFile& file, std::string_view version);

// From now on a page of a mapped file that is gone (the file was cut) ends the program with a line that names the file
// and exit code 2, where it would end by SIGBUS. Not for a library: signals belong to the program.
void explain_lost_pages();

inline std::string_view mapped_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.size())};
}

}  // namespace ttrace
