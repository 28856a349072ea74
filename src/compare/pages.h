// Keeps the memory in use bounded where tensors are read in place: mapped pages stay resident once read, and count as
// this process's, until they are released.
#pragma once

#include <cstdint>
#include <vector>

#include "compare/tile_bytes.h"

namespace ttrace {

// The pages that one thread has read and not yet released. They are released 32 MiB at a time, so that one call
// serves many small tensors that share pages, and tiles next to each other.
class ReadPages {
 public:
  void add(const std::vector<ReadRange>& ranges);
  void release();

 private:
  std::vector<ReadRange> ranges_;  // mapped
  std::int64_t bytes_ = 0;
};

}  // namespace ttrace
