// Reads and writes tolerance files: YAML, one line a tensor, so that a diff shows what moved.
//
//   ttrace_tolerance: 4
//   reference: 2f6c                        # run ids
//   digest: 9f86d081884c7d65               # of what the reference held
//   perturbed:
//     - {run: 81aa, seed: 1}
//   rerun: 97d0                            # or null
//   estimator: input                       # what the perturbed runs perturbed, or modules
//   compute_dtype: bfloat16
//   epsilon: 0.0078125                     # of the compute dtype
//   margin: 3
//   notes: []                              # what the estimation met
//   overrides:                             # of people; the last that matches wins
//     - {pattern: mlp.router, kind: output, allowed: 0.2, reason: a token near a tie may be re-routed}
//   coherence:                             # by kind and name, '#' for a number (tolerance/coherence.h)
//     main_grad:
//       layers.#.mlp.fc1.weight: {samples: [-1e-05], spread: 0.001, members: 16, inflation: 1.1, responses: 30,
//         floor: 0, allowed: 0.0022}
//   updates:                               # of optimizers' steps, by class and iteration (load/update_tolerances.h)
//     torch.optim.rmsprop.RMSprop:
//       0: {pool: [0], tensor: [1e-07], decay: [0], norm: [1], still_above: [0], still: [0]}
//   options:                               # that are not the same in all runs; lacks where there are none
//     torch.optim.adam.Adam: {1: {lr: [1.5e-05]}}
//   seal: x1f2e3d4c5b6a7988                # of all but the overrides (load/tolerance_seal.h)
//   tensors:                               # by kind
//     output:
//       embedding: {samples: [0.003], rerun: 0, estimate: 0.003, floor: 0.0078125, allowed: 0.0234375,
//         scale: {samples: [-2e-05], rerun: 0, estimate: 3e-05, responses: 48, floor: 0.0002, allowed: 0.00125},
//         row: {...}, element: {...}}
//
// A check reads `reference`, `digest`, `compute_dtype`, `overrides`, `coherence`, `updates`, `options` and each `allowed`; the
// rest says where they come from, and must say what they are: margin * max(estimate, floor), of an estimate that is the
// largest sample. What is allowed of the statistics beside the norm is `factor_of` times the larger of their estimate,
// no larger than the largest sample of the tensor's group, and their floor. Tensors of few elements have none of them.
// A file that people write may lack `updates`, `options` and `seal`, and `coherence` where its tensors have no groups.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tolerance/tolerance.h"

namespace ttrace {

inline constexpr std::string_view kToleranceVersion = "4";
inline constexpr const char* kToleranceFile = "a file of `ttrace estimate-tolerance`";

// Throws InputError with `file:line` for YAML that does not parse, keys that are unknown, missing or
// twice, numbers that are not finite or negative, an override without a reason, an epsilon that is not the compute
// dtype's, too few perturbed runs or other numbers of samples, for an `estimate` or `allowed` that is not what the
// rest says, and for a seal that is not that of the rest.
ToleranceFile read_tolerances(const std::filesystem::path& path);
ToleranceFile parse_tolerances(std::string text, const std::string& where);
std::string to_yaml(const ToleranceFile& file);  // parses back to the same values

}  // namespace ttrace
