// Keeps the memory in use bounded: mapped pages stay resident once read, and count as this process's,
// until they are released.
#pragma once

#include <cstdint>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

// Mapped bytes that have been read. All are of one tensor.
struct PageRange {
  const MappedFile* file;
  const std::byte *begin, *end;
  const Entry* entry = nullptr;
};

// The pages that one thread has read and not yet released. They are released a few MiB at a time, so that one call
// serves many small tensors that share pages, and tiles next to each other.
class ReadPages {
 public:
  void add(const std::vector<PageRange>& ranges);
  void release();

 private:
  std::vector<PageRange> ranges_;
  std::int64_t bytes_ = 0;
};

}  // namespace ttrace
