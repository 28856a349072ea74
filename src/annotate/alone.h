// Without a reference, ranks can only be held against each other.
#pragma once

#include <optional>
#include <string>

#include "annotate/hypotheses.h"
#include "ttrace/annotate/propose.h"

namespace ttrace {

// What the ranks' copies of the tensors of one subject say: equal bits along an axis mean that it replicates;
// other sizes, or other values in the only dimension, that it splits. The rule has no pattern yet.
DraftRule propose_alone(const SubjectKey& key, const Subject& subject, const Choices& choices);

}  // namespace ttrace
