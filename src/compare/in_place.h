// Chooses whether tiles are read where their files are mapped, or copied to a buffer. Where the page cache holds a file
// in large pages, a copy costs more than the faults that map them. Where it holds single pages of 4 KiB, a fault maps
// 64 KiB of them at most, and so many faults, and taking the pages out of memory again, cost more than a copy.
#pragma once

#include <cstdint>
#include <span>

#include "compare/tile_bytes.h"

namespace ttrace {

// The choice of one thread, which counts its own page faults. Nothing but speed depends on it.
class InPlaceChoice {
 public:
  // Says how the thread is to read its next tile, of which `add` is then told what it has read.
  ReadInPlace next();
  void add(std::span<const ReadRange> read);

 private:
  std::int64_t faults_before_ = 0;  // of this thread, at `next`
  std::int64_t faults_ = 0, mapped_bytes_ = 0;
  std::int64_t bytes_to_copy_ = 0;  // before it tries again
};

}  // namespace ttrace
