// Writes a file that appears whole or not at all: beside its place, under a name once it is whole. Where writing fails
// or the process ends, what was there before stays.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ttrace {

class ReplacedFile {
 public:
  // Shows at once whether the file can be written; a link is followed. A pipe or a device is written to as it is. Throws
  // InputError, also for a file that holds a trace or a history, and for a pipe that nobody reads.
  explicit ReplacedFile(std::filesystem::path path);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  ReplacedFile(ReplacedFile&& other) noexcept;
  ReplacedFile& operator=(ReplacedFile&&) = delete;

  // Throw InputError, with why.
  void write(std::string_view bytes);
  void finish();  // puts the file in its place

  // The place of the file, behind links.
  const std::filesystem::path& path() const { return path_; }
  bool is_in_place() const { return !is_beside_; }  // a pipe or a device

 private:
  void open_beside();
  void flush();
  void write_through(std::string_view bytes) const;
  [[noreturn]] void fail(int error) const;

  std::filesystem::path given_;  // for messages
  std::filesystem::path path_;
  std::filesystem::path beside_;  // empty: the file has no name yet
  int descriptor_ = -1;
  bool is_beside_ = true;
  std::string buffer_;
};

}  // namespace ttrace
