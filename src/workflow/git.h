// What git says of the working directory.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace ttrace {

// Empty: there is no repository, no commit in it, or no git.
std::string git_commit();

// The content of every file of the repository that is not ignored, as it lies there: its path from the top -> the id
// that git has for such content. Committing a file changes nothing. A submodule is its commit, with what was changed in
// it. Without the files in `apart` (absolute paths). Absent where there is no commit.
std::optional<std::map<std::string, std::string>> git_files(const std::set<std::filesystem::path>& apart);

}  // namespace ttrace
