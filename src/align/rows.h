// Tensors whose rows are tokens that a router has sent to experts, in any order and number: each row is found by
// the identity that was recorded with it, not by its position.
#pragma once

#include <string>
#include <vector>

#include "base/alignment.h"
#include "identify/microbatch.h"
#include "identify/placement.h"
#include "identify/ranks.h"

namespace ttrace {

// Adds to `alignment` the tensors that `shards` make up: for each name, kind and micro-batch of the tokens one of
// shape [tokens, ...], of which `rows` are held. The tensors that the tokens came from must be there already.
// Adds a finding instead where the recorded identities make no sense, or only some of a row's ranks hold it.
void align_rows(const RankTable& table, const ResolvedAnnotations& annotations, const Microbatches& microbatches,
                const std::vector<RowShard>& shards, Alignment& alignment);

}  // namespace ttrace
