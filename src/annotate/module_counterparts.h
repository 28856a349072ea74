// Finds which modules of one program are which of another's: those of parameters that correspond, those around them,
// and those whose results are near each other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "annotate/parameter_counterparts.h"
#include "ttrace/align/aligned_trace.h"

namespace ttrace {

// What activations say of two modules.
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
  std::uint64_t order = 0;  // of execution, in the reference
};

struct ModuleMatches {
  std::string activations;  // the pattern of most inputs and outputs
  std::vector<Counterparts> counterparts;
  std::map<std::string, double> scalars;     // of one name on both sides, and not quite equal: how far apart
  std::set<std::string> lone_modules[2];     // with tensors of which no counterpart was found
  std::set<std::string> lone_parameters[2];  // the same, of parameters
};

ModuleMatches match_modules(const AlignedTrace& reference, const AlignedTrace& candidate,
                            const ParameterMatches& parameters, std::optional<Dtype> dtype);

}  // namespace ttrace
