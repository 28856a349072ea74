// Drafts a rule without a reference: ranks can then only be compared with each other.
#pragma once

#include <optional>
#include <string>

#include "annotate/hypotheses.h"
#include "ttrace/annotate/propose.h"

namespace ttrace {

// Drafts the rule of one subject from the shards of its ranks: equal bits along an axis mean that the axis replicates;
// different sizes, or different values of a one-dimensional parameter, mean that it splits. The rule that is returned
// has no pattern yet.
DraftRule propose_rule_without_reference(const SubjectKey& key, const Subject& subject,
                                         const PlacementChoices& choices);

}  // namespace ttrace
