// A line of a drafted correspondence: what was found to correspond, and by what.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "annotate/pattern_trial.h"

namespace ttrace {

// Holds what activations say of two modules.
struct NearValues {
  double distance = 0;              // relative
  std::optional<double> otherwise;  // of the next best of what was tried
};

// Names that correspond, of one layer: a line of the file before layers are put together.
struct Counterparts {
  std::vector<std::string> names[2];            // the reference's, the candidate's
  std::map<std::string, std::string> patterns;  // as in the file, by what they are of; `none`, too
  AxisSizes sizes;
  std::set<std::string> equal;                  // what of the parameters has equal values
  std::map<std::string, NearValues> near, far;  // by `input` and `output`
  std::vector<std::string> remarks;
  std::uint64_t order = std::numeric_limits<std::uint64_t>::max();  // of execution, in the reference
};

}  // namespace ttrace
