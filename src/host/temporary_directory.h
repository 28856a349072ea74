// A directory among the temporary ones that goes with everything in it.
#pragma once

#include <filesystem>
#include <string>

namespace ttrace {

// Removed with all that is in it when the object is; what was mapped of its files stays readable.
class TemporaryDirectory {
 public:
  // `use` says in the message what needs room there. Throws InputError where it cannot be made.
  explicit TemporaryDirectory(const std::string& use);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ttrace
