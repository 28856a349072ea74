// Keeps a draft from learning a bug. What one layer does and its sisters do not (an expert and the others, too) is more
// likely a mistake of that layer than a rule: a swapped pair of tensors has equal values, and yet is wrong.
#pragma once

#include "annotate/parameter_counterparts.h"

namespace ttrace {

// Puts what most layers do in the place of what one of them does otherwise, where the names that it would have there
// exist: parts of a fused parameter in another order, tensors of other names, or of another layer's number. Such a match
// becomes `is_predicted`, and what the values say goes to `ParameterMatches::odd`. Where no more layers do the one than
// the other, parts go in the order that is nearer to the reference's, and layers that trade places have no rule.
void settle_odd_layers(const std::vector<const LogicalTensor*>& reference,
                       const std::vector<const LogicalTensor*>& candidate, ParameterMatches& matches);

}  // namespace ttrace
