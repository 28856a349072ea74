// Observes a tensor without a reference: ranks can then only be compared with each other.
#pragma once

#include <optional>
#include <string>

#include "annotate/hypotheses.h"
#include "annotate/observation.h"

namespace ttrace {

// Observes one subject from the shards of its ranks: equal bits along an axis mean that the axis replicates; different
// sizes, or different values of a one-dimensional parameter, mean that it splits.
SubjectObservation observe_without_reference(const SubjectKey& key, const Subject& subject,
                                             const PlacementChoices& choices);

}  // namespace ttrace
