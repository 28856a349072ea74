// From what a rank calls a tensor to what the reference calls it (TTrace, section 4.1): global numbers of
// layers and experts, global micro-batches.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "align/experts.h"
#include "align/pipeline.h"
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

// Which of the copies that a pipeline makes of a tensor.
struct Copy {
  std::int64_t stage = 0;  // virtual
  std::size_t name = 0;    // of a tied parameter: 0 for its own, else that of the n-th rule
  friend auto operator<=>(const Copy&, const Copy&) = default;
};

struct Shard {
  const PresentRank* holder = nullptr;
  const Entry* entry = nullptr;
  Copy copy{};
  std::int32_t microbatch = 0;  // the local one, in a sum over them; else 0
};

// What the micro-batch axis does in a tensor.
enum class MicrobatchUse : std::uint8_t {
  kNone,      // what any axis does
  kSelected,  // tells the micro-batches apart: all shards have the same coordinate on it
  kSummed,    // its ranks hold terms of the sum over all micro-batches
};

// The entries of all ranks that are one canonical tensor.
struct Group {
  TensorId id;
  Stages stages = Stages::kAny;
  MicrobatchUse microbatches = MicrobatchUse::kNone;
  bool expert = false;      // on one coordinate of the expert axis
  bool sum_copies = false;  // a tied parameter's gradient: the stages hold terms, not replicas
  const TensorPlacement* placement = nullptr;
  std::vector<Shard> shards;  // by rank
};

struct Grouping {
  std::vector<Group> groups;                                           // by id
  std::map<std::pair<std::string, Kind>, TensorPlacement> placements;  // by canonical name and kind
  std::map<const RecordedMapping*, TensorPlacement> recorded;          // by what the program said
  std::vector<RowShard> rows;                                          // tensors of routed tokens
  std::set<TensorId> local;                                            // what a rule keeps out
  Pipeline pipeline;
  Experts experts;
  std::vector<Finding> findings;  // model chunks and micro-batches that nobody ran
};
Grouping group_shards(const RankTable& table, const Annotations& annotations, const ModelLayout& layout);

// The reference's name of a parameter that is tied to it, and the rule's position + 1; or `name` and 0.
std::pair<std::string, std::size_t> tied_name(const Annotations& annotations, const std::string& name);

}  // namespace ttrace
