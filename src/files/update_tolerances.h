// The sections `updates` and `options` of a tolerance file: how far the updates of correct runs, and what their
// optimizers step with, are from the reference's.
//
//   updates:                               # by the optimizer's class, then by iteration
//     pytorch_optimizer.lion.Lion:
//       0: {pool: [1e-08, 0, 3e-08], tensor: [...], decay: [...], norm: [...], still_above: [...], still: [...]}
//   options:                               # those that are not the same in all runs
//     torch.optim.adam.Adam:
//       1: {lr: [1.5e-05, 0, 2e-06]}
#pragma once

#include <string>

#include "files/yaml_fields.h"
#include "tolerance/update_tolerance.h"

namespace ttrace {

// `samples`: the number that each measure has. Throws InputError where there are others, for a sample that is no number
// from 0 to 1, and for an iteration that is none.
UpdateTolerances read_update_tolerances(const std::string& where, const YamlNode& node, int line, std::size_t samples);

// The same of options.
OptionTolerances read_option_tolerances(const std::string& where, const YamlNode& node, int line, std::size_t samples);

// Empty where nothing was measured.
std::string to_yaml(const UpdateTolerances& tolerances);
std::string to_yaml(const OptionTolerances& tolerances);

}  // namespace ttrace
