// Makes the notes of an alignment, which are for people: what was deduced, and what the annotations do not say. No verdict depends on it.
#pragma once

#include <string>
#include <vector>

#include "base/alignment.h"
#include "identify/identity.h"
#include "identify/ranks.h"
#include "identify/resolved_annotations.h"

namespace ttrace {

// Notes how layers were numbered, and of which modules some stages are left out, or that no rule speaks of the pipeline.
// `grouping` still has its groups: they are spent once the tensors are assembled.
std::vector<std::string> notes_of_pipeline(const Grouping& grouping, const RankTable& ranks,
                                           const ResolvedAnnotations& annotations);

// Notes patterns that place nothing, the micro-batches that ranks were found to run, what shapes have placed, and the
// tensors that nothing places. `alignment` has all of its tensors.
std::vector<std::string> notes_of_placements(const Grouping& grouping, const RankTable& ranks,
                                             const ResolvedAnnotations& annotations, const Alignment& alignment);

}  // namespace ttrace
