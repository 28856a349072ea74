// Finds which scalars of one program, such as the loss, are which of another's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "annotate/counterparts.h"

namespace ttrace {

struct ScalarMatches {
  std::vector<Counterparts> renamed;  // those of one name correspond without a line
  std::map<std::string, double> far;  // of one name on both sides, and not near: how far apart
};

ScalarMatches match_scalars(const Alignment& reference, const Alignment& candidate);

}  // namespace ttrace
