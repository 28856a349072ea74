// From what a rank calls a tensor to what the reference calls it (TTrace, section 4.1): global layer
// numbers, global micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "align/placement.h"
#include "align/ranks.h"
#include "align/rows.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// Which pipeline stages' copies of a tensor make up the logical one.
enum class Stages : std::uint8_t {
  kAny,    // one or several; several are replicas
  kOne,    // a layer's: on two stages it is there twice
  kFirst,  // what flows into a module that spans the stages: the first one's
  kLast,   // what flows out of it: the last one's
};

struct Shard {
  const PresentRank* holder = nullptr;
  const Entry* entry = nullptr;
};

// The entries of all ranks that are one canonical tensor.
struct Group {
  TensorId id;
  Stages stages = Stages::kAny;
  bool selected = false;  // by the micro-batch axis: all shards have the same coordinate on it
  const TensorPlacement* placement = nullptr;
  std::vector<Shard> shards;  // by rank
};

struct Grouping {
  std::vector<Group> groups;                                           // by id
  std::map<std::pair<std::string, Kind>, TensorPlacement> placements;  // by canonical name and kind
  std::map<const RecordedMapping*, TensorPlacement> recorded;          // by what the program said
  std::vector<RowShard> rows;                                          // tensors of routed tokens
  std::set<TensorId> local;                                            // what a rule keeps out
  std::vector<Finding> findings;                                       // micro-batches that nobody ran
};
Grouping group_shards(const RankTable& table, const Annotations& annotations, const ModelLayout& layout);

}  // namespace ttrace
