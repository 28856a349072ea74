// Whether a rank's gradients have another size than those of the others, as where it misses a loss scale.
#pragma once

#include <cstdint>
#include <optional>

#include "base/trace.h"

namespace ttrace {

struct UnlikeGradients {
  std::int32_t rank = 0;
  double factor = 1;  // of its norms, beside the median of the ranks that hold the same parameter
};

// Looks at the iterations of a job, one after the other. A rank's samples may make its gradients small, once they are
// averaged nothing is wrong by that alone, and no more than a question comes of it: where all ranks' were alike in two
// iterations or more, and one's no more is.
class GradientWatch {
 public:
  // Reads the smallest gradients, at most 16 a rank. Throws InputError.
  std::optional<UnlikeGradients> look_at(const Trace& trace);

 private:
  int alike_ = 0;  // in so many iterations
};

}  // namespace ttrace
