// Makes local micro-batches global: data-parallel ranks run different micro-batches of one sequence.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "align/ranks.h"
#include "ttrace/annotation.h"

namespace ttrace {

struct Microbatches {
  int axis = -1;           // index into the table's axes; -1 where local micro-batches are global ones
  std::int64_t ranks = 1;  // along the axis
  MicrobatchOrder order = MicrobatchOrder::kInterleaved;
  // By iteration, then coordinate: how many micro-batches were run, and the first one of each where they are blocked.
  std::map<std::int32_t, std::vector<std::int64_t>> counts, block_starts;
};

Microbatches microbatches_of(const RankTable& table, const Annotations& annotations);

// Throws InputError when the number does not fit the 32 bits of an identity.
std::int32_t global_microbatch(const Microbatches& microbatches, std::int32_t iteration, std::int64_t coordinate,
                               std::int32_t local);

// Finds the global micro-batches below the last one that no rank ran, because some ranks ran fewer than others. There
// is one finding for each such iteration.
std::vector<Finding> find_skipped_microbatches(const RankTable& table, const Microbatches& microbatches);

}  // namespace ttrace
