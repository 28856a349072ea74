// Tells which splits over the tensor-parallel axis are those of sequence parallelism.
#pragma once

#include "annotate/observation.h"
#include "base/axis_names.h"

namespace ttrace {

// Names sp what splits the sequence, where the mesh says that sequence parallelism (sp) uses the ranks of another axis,
// so that the rules hold for programs without it, too: activations in a dimension as long as the reference's sequences,
// but for the last of three or more, which is a channel; and the sums of parameters' gradients, whose module such an
// activation flows through. `subjects` have the shapes, `reference` the tokens.
void name_sequence_splits(Observations& observations, const Subjects& subjects, const Mesh& mesh,
                          const Alignment& reference);

// Does the same by comparing candidates: what a program with sequence parallelism splits, or adds up, and one without
// it holds whole on each of the same ranks.
void name_sequence_splits(std::vector<ObservedCandidate>& candidates);

}  // namespace ttrace
