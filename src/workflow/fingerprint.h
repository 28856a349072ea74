// Computes fingerprints of text and files: equal ones mean equal bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

std::string fingerprint(std::string_view bytes);  // XXH3, 128 bits, in hexadecimal

// Returns the fingerprint of the file's bytes, or of those that a symbolic link points to; "directory" for a directory.
// Throws InputError where it cannot be read.
std::string fingerprint_of(const std::filesystem::path& path);

// The size of all files below a directory that `fingerprints_of` would read.
std::uint64_t bytes_below(const std::filesystem::path& directory, const std::filesystem::path& without = {});

// Maps path -> fingerprint for every file that `inputs` names: files, directories (all files below, but no hidden ones,
// no __pycache__, and no packages in a virtual environment or node_modules), and patterns as a shell has them
// (*, ?, []), relative to the working directory. What lies in `without`, a canonical path, is left out. Throws InputError
// for an input that names no file.
std::map<std::string, std::string> fingerprints_of(const std::vector<std::string>& inputs,
                                                   const std::filesystem::path& without = {});

}  // namespace ttrace
