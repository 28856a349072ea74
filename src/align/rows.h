// Tensors whose rows are tokens that a router has sent to experts, in any order and number: each row is found by
// the identity that was recorded with it, not by its position.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "align/placement.h"
#include "align/ranks.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// One recorded tensor of this kind.
struct RowShard {
  const PresentRank* holder = nullptr;
  const Entry* entry = nullptr;
  std::string name;  // canonical
  const TensorPlacement* placement = nullptr;
};

// Of names that match a pattern, the one meant: true when `a` shares a longer path with `name` than `b`, or as long a
// one and is of the same call where `b` is not.
bool is_nearer(std::string_view name, std::string_view a, std::string_view b);

// Adds to `alignment` the tensors that `shards` make up: for each name, kind and micro-batch of the tokens one of
// shape [tokens, ...], of which `rows` are held. The tensors that the tokens came from must be there already.
// What is wrong with the recorded identities is a finding; so is a row that only some of its ranks hold.
void align_rows(const RankTable& table, const Annotations& annotations, const std::vector<RowShard>& shards,
                Alignment& alignment);

}  // namespace ttrace
