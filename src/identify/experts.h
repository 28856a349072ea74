// Makes local expert numbers global: coordinate e of the expert axis holds the e-th equal part of a layer's experts.
#pragma once

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/numbering.h"
#include "identify/pipeline.h"
#include "identify/ranks.h"
#include "identify/resolved_annotations.h"

namespace ttrace {

struct Experts {
  int axis = -1;      // index into the table's axes; -1 where no rule spreads experts over several ranks
  Numbering experts;  // its parts are the axis's coordinates; it is for names whose layers have global numbers
};

// The number of experts comes from the reference's layout. Where that has none, each part is taken to be as large as
// the fullest one. Throws InputError when the number does not divide into equal parts.
Experts experts_of(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                   const Pipeline& pipeline, const ModelLayout& layout);

}  // namespace ttrace
