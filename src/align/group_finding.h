// Findings about one group of shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "identify/identity.h"

namespace ttrace {

// `what` completes the message, which begins with the tensor. `ranks` may be in any order, repeat each other, and hold
// -1 for a rank that nobody can tell, which the finding leaves out.
Finding finding_of(const Group& group, Verdict verdict, Reason reason, const std::string& what,
                   std::vector<std::int32_t> ranks);

// `rule` says what all shards should have in common, and `describe` puts a shard's property into words; the message
// lists the different words and the ranks that have them.
Finding disagreement(const Group& group, std::string_view rule,
                     const std::function<std::string(const Entry&)>& describe);

// The shape of the rank's own tensor, as text.
std::string own_shape_text(const Entry& entry);

}  // namespace ttrace
