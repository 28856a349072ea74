#include "identify/identify.h"

#include <utility>

#include "identify/ties.h"

namespace ttrace {

Identification identify(const RankTable& ranks, ResolvedAnnotations annotations, const ModelLayout& layout,
                        int threads) {
  Identification who;
  const int expert_axis = annotations.expert_axis.value_or(ResolvedAxis()).index;
  who.census = census_of(ranks, annotations.stage_axis.index, expert_axis, threads);
  annotations.said.tied = ties_that_hold(std::move(annotations.said.tied), who.census, layout);
  who.annotations = std::move(annotations);
  who.grouping = group_shards(ranks, who.census, who.annotations, layout, threads);
  return who;
}

}  // namespace ttrace
