// A file that is written with plain system calls, so that the recorder learns why one fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace ttrace {

// Every member that fails throws RecordError: kFull for no space (disk, quota, file size limit), kExists
// where the file was there before, kIo for the rest.
class RawFile {
 public:
  explicit RawFile(const std::filesystem::path& path);  // makes the file, which must not exist
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write_at(std::uint64_t offset, std::string_view bytes);
  // Returns whether `bytes` could be read to `to`.
  bool read_at(std::uint64_t offset, char* to, std::size_t bytes) const noexcept;
  void truncate(std::uint64_t size) noexcept;  // a failure is ignored
  void close();                                // fails where a network file system reports that it lost data

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace ttrace
