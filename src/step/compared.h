// Holds what the judges of steps look at: the tensors of both runs in pairs, and what was measured between them.
#pragma once

#include <span>

#include "base/finding.h"
#include "judge/match.h"
#include "tolerance/tolerance.h"

namespace ttrace {

struct Compared {
  const Matching& matching;
  std::span<const Difference> differences;   // of its pairs, in their order
  const ToleranceFile* tolerance = nullptr;  // null: there is none
  int threads = 0;                           // 0: OpenMP's default
};

}  // namespace ttrace
