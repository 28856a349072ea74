// Asks git about the working directory.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace ttrace {

// The commit's id; empty where there is no repository, no commit in it, or no git.
std::string git_commit();

// path from the top of the repository -> the id that git has for the file's content as it lies there, so that
// committing a file changes nothing. Lists every file that is not ignored and not in `left_out` (absolute paths). A
// submodule's id is of its commit and of what was changed in it. Absent where there is no commit.
std::optional<std::map<std::string, std::string>> git_files(const std::set<std::filesystem::path>& left_out);

}  // namespace ttrace
