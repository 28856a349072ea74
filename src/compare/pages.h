// Keeps the memory in use bounded: mapped pages stay resident once read, and count as this process's,
// until they are released.
#pragma once

#include <cstdint>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

// Mapped bytes that have been read.
struct PageRange {
  const MappedFile* file;
  const std::byte *begin, *end;
};

// What one thread has read and not yet released. It is released a few MiB at a time: one call for many
// small tensors that share pages, and for tiles next to each other.
class ReadPages {
 public:
  void add(const std::vector<PageRange>& ranges);
  void release();

 private:
  std::vector<PageRange> ranges_;
  std::int64_t bytes_ = 0;
};

}  // namespace ttrace
