// The lines of a correspondence that parameters give, before results are looked at.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "align/aligned_trace.h"
#include "annotate/counterparts.h"
#include "annotate/parameter_counterparts.h"

namespace ttrace {

// The arrays are of the reference and of the candidate. What `rows` points to belongs to the matches.
struct ParameterRules {
  std::vector<Counterparts> rules;
  std::map<std::string, const LogicalTensor*> parameters[2];       // by name
  std::map<std::string, std::size_t> match_of[2];                  // of a parameter, an index into the matches
  std::map<std::vector<std::string>, const ParameterMatch*> rows;  // by the reference's modules
  std::set<std::string> owners[2];                                 // modules whose own parameters correspond
  std::set<std::string> named[2];                                  // parameters that follow a weight
};

ParameterRules rules_of_parameters(const AlignedTrace& reference, const AlignedTrace& candidate,
                                   const ParameterMatches& matches, std::optional<Dtype> dtype);

// Parameters of a side that none of `rules` tells the counterpart of.
std::set<std::string> lone_parameters(const ParameterRules& of, const std::vector<Counterparts>& rules,
                                      std::size_t side);

}  // namespace ttrace
