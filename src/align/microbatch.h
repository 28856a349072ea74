// Local micro-batches to global ones: data-parallel ranks run different micro-batches of one sequence.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "align/ranks.h"
#include "ttrace/annotation.h"

namespace ttrace {

struct Microbatches {
  int axis = -1;  // in the table; -1 where local micro-batches are global ones
  std::int64_t ranks = 1;
  MicrobatchOrder order = MicrobatchOrder::kInterleaved;
  std::map<std::int32_t, std::vector<std::int64_t>> first;   // blocked: the first one, by iteration, coordinate
  std::map<std::int32_t, std::vector<std::int64_t>> counts;  // by iteration, coordinate
};

Microbatches microbatches_of(const RankTable& table, const Annotations& annotations);

// Throws InputError when it does not fit the 32 bits of an identity.
std::int32_t global_microbatch(const Microbatches& microbatches, std::int32_t iteration, std::int64_t coordinate,
                               std::int32_t local);

// Global micro-batches below the last that no rank ran, because some ranks ran fewer: one finding for an
// iteration.
std::vector<Finding> find_holes(const RankTable& table, const Microbatches& microbatches);

}  // namespace ttrace
