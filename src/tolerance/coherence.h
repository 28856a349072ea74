// The scale that several tensors have in common: a factor that is too near to 1 to be seen in any of them, but is in
// all. src/tolerance/coherence.cpp has the reasons and the rules.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Tolerances are pooled over micro-batches and iterations: one per kind and canonical name.
using ToleranceKey = std::pair<Kind, std::string>;

// True for the norm of an iteration's gradients, before they are clipped; `grad_norm#1` is a second one, of some of
// them.
bool is_gradient_norm(const ToleranceKey& key);

// Tells by how much one tensor is the reference's multiple (`Difference::scale_err`).
struct TensorScale {
  TensorId id;
  double scale = 0;
};

// Tells how much a tensor's scale differs from that of the others of its kind in its layer.
struct Contrast {
  std::size_t tensor = 0;  // its place among those given
  double value = 0;
};
// Lists contrasts by group: the tensors of a kind whose names differ in numbers, with '#' for each number.
using Contrasts = std::map<ToleranceKey, std::vector<Contrast>>;

// Returns the contrasts of the tensors that have one: outputs, inputs, and gradients but the optimizer's, of a layer in
// which tensors of kLeastGroups groups are given, in the same micro-batch and iteration.
inline constexpr std::size_t kLeastGroups = 4;
Contrasts contrasts_of(std::span<const TensorScale> tensors);

// Says what the mean contrast of a group may be.
struct CoherenceTolerance {
  std::vector<double> samples;  // of each perturbed run, the mean over the group; signed
  double spread = 0;            // root mean square of a contrast
  std::int64_t members = 0;     // how many contrasts a run has
  double inflation = 1;         // of the mean's variance, beside that of independent contrasts
  std::int64_t responses = 0;   // degrees of freedom
  double floor = 0;             // what the mean may be whatever the number of members
  double allowed = 0;           // what the rest gives
};
using CoherenceTolerances = std::map<ToleranceKey, CoherenceTolerance>;

// Returns what the mean of the contrasts may be, in magnitude; and that of as many as the perturbed runs had, and no
// larger scatter, which is `allowed`.
double allowed_for(const CoherenceTolerance& tolerance, std::span<const Contrast> contrasts);
double allowed_for(const CoherenceTolerance& tolerance);

double mean_of(std::span<const Contrast> contrasts);

}  // namespace ttrace
