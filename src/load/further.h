// Takes care of iterations that ranks recorded beyond those that they were asked for (`FurtherIterations`): each rank
// goes on by what it holds itself, and so one may have recorded more of them than another.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// Takes out of the rank what it recorded of iterations that the program did not finish.
void leave_out_unfinished(const FurtherIterations& further, RankTrace& rank);

// Takes out of all ranks the further iterations of any that some rank has not recorded, and returns them; and of those
// that some rank recorded lightly what is not recorded so. A rank that recorded nothing at all is not asked.
std::set<std::int32_t> leave_out_uncommon(const std::vector<RankTrace*>& ranks);

// Marks the ranks of one run that lack a further iteration which another has recorded: `RankTrace::lacks_further`.
void mark_those_that_lack(const std::vector<RankTrace*>& ranks);

// Returns the iterations that some rank recorded lightly.
std::set<std::int32_t> light_iterations(const std::vector<RankTrace*>& ranks);

// Takes the iterations out of all ranks.
void leave_out(const std::set<std::int32_t>& iterations, const std::vector<RankTrace*>& ranks);

// Takes the light iterations that hold sketches out of a run for `what`, which needs elements. Throws InputError where a
// tensor of another one is a sketch.
void keep_elements(Trace& trace, std::string_view what);

}  // namespace ttrace
