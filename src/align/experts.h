// Local expert numbers to global ones: coordinate e of the expert axis holds the e-th equal part of a layer's
// experts.
#pragma once

#include "align/numbering.h"
#include "align/pipeline.h"
#include "align/ranks.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

struct Experts {
  int axis = -1;      // in the table; -1 where no rule spreads experts over several ranks
  Numbering experts;  // of the axis's coordinates, in names whose layers are numbered already
};

// The number of experts comes from the reference's layout, and InputError is thrown when it does not divide. Where
// that has none, each part is as large as the fullest.
Experts experts_of(const RankTable& table, const Annotations& annotations, const Pipeline& pipeline,
                   const ModelLayout& layout);

}  // namespace ttrace
