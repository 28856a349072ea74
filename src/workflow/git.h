// Asks git about the working directory.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace ttrace {

// Returns the commit's id; empty where there is no repository, no commit in it, or no git.
std::string git_commit();

// Returns the top of the repository that the directory lies in, or the directory itself where it lies in none.
std::filesystem::path top_of_repository(const std::filesystem::path& directory);

// Maps every file that is not ignored and not in `left_out` (absolute paths), by its path from the top of the
// repository, to git's id of its present content, so that committing a file changes nothing. A submodule's id is of its
// commit and of what was changed in it. Returns nothing where there is no commit.
std::optional<std::map<std::string, std::string>> git_files(const std::set<std::filesystem::path>& left_out);

}  // namespace ttrace
