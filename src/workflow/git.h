// Asks git about the repository that a directory lies in.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace ttrace {

class Repository {
 public:
  // `directory` may lie in no repository: the functions say what they return then.
  explicit Repository(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // Returns the commit's id; empty where there is no repository, no commit in it, or no git.
  std::string commit() const;

  // Returns the top of the repository; nothing where there is none.
  std::optional<std::filesystem::path> top() const;

  // Maps every file that git tracks, and every source or configuration file that it neither tracks nor ignores, to git's
  // id of its present content, so that committing one changes nothing: by its path from the top of the repository,
  // without those in `left_out` (absolute paths). Other untracked files are reports, notes and data. A submodule's id is
  // of its commit and of what was changed in it. Returns nothing where there is no commit.
  std::optional<std::map<std::string, std::string>> files(const std::set<std::filesystem::path>& left_out) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace ttrace
