// The section `coherence` of a tolerance file: what the scale may be that tensors of several layers have in common.
//
//   coherence:                             # by kind, then by name, '#' for a number
//     main_grad:
//       "layers.#.mlp.fc1.weight": {samples: [-1e-05, 0, 3e-05], spread: 0.001, members: 16, inflation: 1.1,
//         responses: 30, floor: 0, allowed: 0.0022}
#pragma once

#include <string>

#include "files/yaml_fields.h"
#include "tolerance/coherence.h"

namespace ttrace {

// `runs`: the number of perturbed runs. Throws InputError for other numbers of samples, for fewer responses than runs,
// for counts that are no counts, and for an `allowed` that is not what the rest says.
CoherenceTolerances read_coherence_tolerances(const std::string& where, const YamlNode& node, int line,
                                              std::size_t runs);

// Empty where there are no groups.
std::string to_yaml(const CoherenceTolerances& tolerances);

}  // namespace ttrace
