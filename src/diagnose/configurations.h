// Compares how the reference and the candidate have configured their modules: what a constructor leaves as plain
// attributes (base/configuration.h).
//
// Most of what differs between two correct runs is legal, and no remark: how the program is laid out on ranks and
// devices, sizes that are a rank's part, fused or recomputed in place of plain. Attributes are compared that both
// modules have; where their classes differ, the same word may mean something else, and numbers with a fraction alone are
// compared (eps, p, momentum, scale).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/alignment.h"
#include "base/configuration.h"
#include "base/trace.h"

namespace ttrace {

// By the canonical name of a module; `modules` of each is 1.
using ConfiguredOtherwise = std::map<std::string, std::vector<OtherAttribute>>;

// The alignments are of the traces, and in the same names. A module is known by its recorded tensors.
ConfiguredOtherwise compare_configurations(const Alignment& reference, const Trace& reference_trace,
                                           const Alignment& candidate, const Trace& candidate_trace);

// What to say of a run: each attribute once, with the number of modules in which it differs so.
std::vector<OtherAttribute> group_by_attribute(const ConfiguredOtherwise& configured);

// `eps 1e-06, reference 1e-05`, of the module that computes the tensor: what may have made it wrong. Empty where that is
// not configured otherwise, and of tensors that no module computes.
std::string configured_otherwise(const TensorId& id, const ConfiguredOtherwise& configured);

// `Sequential, and 4 more: training True, reference False`, of models that the program calls without gradients; empty
// where they are configured alike.
std::string configured_otherwise_without_grad(const ConfiguredOtherwise& configured, const Trace& candidate);

// The classes of the models that the program calls without gradients alone, and which are not recorded.
std::vector<std::string> models_without_grad(const Trace& trace);

// True where the module that computes the tensor trains on one side, and not on the other.
bool is_in_other_mode(const TensorId& id, const ConfiguredOtherwise& configured);

}  // namespace ttrace
