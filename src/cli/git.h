// What git says of the working directory.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

namespace ttrace::cli {

// Empty: there is no repository, no commit in it, or no git.
std::string git_commit();

// Everything that the code of the repository is, for a comparison with what it was: the commit; what tracked files
// differ in from it, submodules too; and each file that is neither tracked nor ignored, but for those in `outputs`
// (absolute paths). Absent where there is no commit.
std::optional<std::map<std::string, std::string>> git_version(const std::set<std::string>& outputs);

}  // namespace ttrace::cli
