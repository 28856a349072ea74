// Compares pairs of logical tensors in one pass over memory. `Difference` says what is measured.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/finding.h"

namespace ttrace {

struct TensorPair {
  const LogicalTensor* reference = nullptr;
  const LogicalTensor* candidate = nullptr;  // same shape
};

struct CompareOptions {
  int threads = 0;  // 0: OpenMP's default
  // Is called now and then from the calling thread with the bytes done and the total; may be empty.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
  bool checksums = true;  // verify those of the recorded tensors that hold the pairs
};

// Returns one Difference per pair, in order, with the same bits for any number of threads. The memory in use stays
// bounded, whatever the tensors' sizes: mapped pages are dropped once read. Throws InputError where a checksum is to be
// verified and the bytes of a tensor are not those that were recorded.
std::vector<Difference> compare(std::span<const TensorPair> pairs, const CompareOptions& options);

// Says, where a side of the pair was recorded as a sketch, why it cannot be compared, as where the border of a shard
// lies inside of a cell; empty where it can.
std::string why_not_by_sketches(const TensorPair& pair);

// Statistics of one recorded tensor, for `ttrace inspect --stats`.
struct TensorStatistics {
  double norm = 0, min = 0, max = 0, mean = 0;  // over finite elements; 0 when there are none
  std::int64_t nan = 0, inf = 0, zero = 0;
};
TensorStatistics statistics_of(const std::byte* data, Dtype dtype, std::int64_t elements);

}  // namespace ttrace
