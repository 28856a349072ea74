// Opens files that others name: never a pipe, which may have no writer, nor a device, which may have no end.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ttrace {

enum class Links : std::uint8_t { kFollow, kRefuse };

// A regular file, open for reading as long as the object lives.
class RegularFile {
 public:
  // Throws InputError where there is none; `expected` says what should be there: "a readable file".
  RegularFile(const std::filesystem::path& path, const std::string& expected, Links links = Links::kFollow);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return descriptor_; }
  const struct stat& status() const { return status_; }

  // The next bytes, at most `size`; 0 at the end. Throws InputError.
  std::size_t read(char* bytes, std::size_t size) const;

  // The bytes from `offset` on: `size` of them, fewer only where the file ends. Throws InputError.
  std::size_t read_at(std::uint64_t offset, std::byte* bytes, std::size_t size) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, expected_;
  int descriptor_;
  struct stat status_{};
};

// The tolerances of 200,000 tensors take 160 MB; nothing else that people write takes one.
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 30;

// The file's text. Throws InputError where it cannot be read or is longer than that; `expected`: "a file of `ttrace
// calibrate`".
std::string read_text_file(const std::filesystem::path& path, const std::string& expected);

}  // namespace ttrace
