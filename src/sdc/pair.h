// Pairs the tensors of two runs of one program, rank by rank.
#pragma once

#include <vector>

#include "base/trace.h"
#include "sdc/mismatch.h"

namespace ttrace {

struct RecordedPair {
  const RankTrace* rank = nullptr;  // of the healthy run
  const RankTrace* suspect_rank = nullptr;
  const Entry* healthy = nullptr;
  const Entry* suspect = nullptr;
  Mismatch mismatch;
};

// Pairs each rank's tensors by identity, in order of the healthy run's execution, and compares their bits, with
// `threads` threads (0: OpenMP's default); the result is the same for any number. Tensors that one side lacks
// because its rank did not end well are left out. Throws InputError when the traces are not of one program: other
// axes, ranks, tensors, shapes, dtypes; or when there is nothing to compare.
std::vector<RecordedPair> pair_recorded(const Trace& healthy, const Trace& suspect, int threads);

}  // namespace ttrace
