// Bytes on their way to the end of a file. They leave in large pieces that are aligned in it: many small writes at odd
// places are slow on every file system, and leave the kernel with a cache of small pages, which are read at half the
// speed of large ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "record/raw_file.h"

namespace ttrace {

// Members throw RecordError where the file can't be written. What was appended before that can still be written then.
class WriteBuffer {
 public:
  static constexpr std::size_t kPieceBytes = 1 << 20;

  // Appends to `file`, which has to live as long, from the offset `begin` on.
  WriteBuffer(RawFile& file, std::uint64_t begin);

  void append(std::string_view bytes);  // writes every piece that is full
  void append_zeros_until(std::uint64_t offset);
  std::uint64_t end() const { return begin_ + filled_; }  // of what was appended, in the file

  // Writes what the file has not yet of what lies before `offset`, which is at most end().
  void write_until(std::uint64_t offset);

  // Returns whether these bytes lie at `offset`, be it in the file or on the way to it.
  bool holds(std::uint64_t offset, std::string_view bytes) const;

 private:
  RawFile& file_;
  std::vector<char> piece_;  // its first `filled_` bytes belong to `begin_` in the file
  std::uint64_t begin_;
  std::uint64_t written_;  // the file has what lies before; never less than begin_
  std::uint64_t filled_ = 0;
};

}  // namespace ttrace
