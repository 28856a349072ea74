// Finds which modules of one program are which of another's: those of parameters that correspond, those around them,
// and those whose results are near each other.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "annotate/counterparts.h"
#include "annotate/parameter_counterparts.h"

namespace ttrace {

struct ModuleMatches {
  std::string activations;  // the pattern of most inputs and outputs
  std::vector<Counterparts> counterparts;
  std::map<std::string, double> scalars;     // of one name on both sides, and not near: how far apart
  std::set<std::string> lone_modules[2];     // with tensors of which no counterpart was found
  std::set<std::string> lone_parameters[2];  // the same, of parameters
};

ModuleMatches match_modules(const AlignedTrace& reference, const AlignedTrace& candidate,
                            const ParameterMatches& parameters, std::optional<Dtype> dtype);

}  // namespace ttrace
