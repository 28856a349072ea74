// Gives each recorded tensor its canonical identity, which is the reference's (TTrace, section 4.1), and groups the
// entries by it. Numbers of layers, experts and micro-batches that are local to a rank become global ones.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/alignment.h"
#include "identify/census.h"
#include "identify/experts.h"
#include "identify/microbatch.h"
#include "identify/pipeline.h"
#include "identify/placement.h"
#include "identify/ranks.h"

namespace ttrace {

// Says on which pipeline stages the shards of a tensor count.
enum class Stages : std::uint8_t {
  kAny,    // on each stage that holds some; they are replicas
  kOne,    // on one: the tensor belongs to a layer, and a second stage holds a duplicate
  kFirst,  // on the first: the tensor flows into a module that spans the stages
  kLast,   // on the last: the tensor flows out of such a module
};

// One of several places where a program with a pipeline has the same tensor. Occurrences are replicas or terms.
struct Occurrence {
  std::int64_t stage = 0;  // the virtual stage
  std::size_t name = 0;    // 0: under its own name; n: under the name that the n-th `tied` rule gives it
  friend auto operator<=>(const Occurrence&, const Occurrence&) = default;
};

struct Shard {
  const PresentRank* holder = nullptr;
  const Entry* entry = nullptr;
  Occurrence occurrence{};
  std::int32_t microbatch = 0;  // the rank's own number in a sum over micro-batches; else 0
};

// How a tensor uses the axes whose ranks run different micro-batches.
enum class MicrobatchUse : std::uint8_t {
  kNone,      // as any other axes
  kSelected,  // the coordinates are part of the identity: all shards have the same
  kSummed,    // the ranks hold terms of the sum over all micro-batches
};

// What a tensor has to do with the number on which backward was called.
enum class LossRole : std::uint8_t {
  kNone,
  kLoss,         // it is that number
  kLikeLoss,     // a number that each rank has of its own samples: it is taken for a mean of these, as a loss is
  kGradient,     // the gradient with respect to a number of either kind: what one process has
  kTermOfSum,    // a number that each rank has of its own samples, which add up to the reference's
  kOwnGradient,  // what each rank has of its own samples in a parameter's gradient, which the program reduces elsewhere
  kGradientOfSum,  // the gradient with respect to such a number: the same on each rank, with the factor of all gradients
};

// True where the number of one slice is a term of the whole's.
inline bool is_term_of_loss(LossRole role) {
  return role == LossRole::kLoss || role == LossRole::kLikeLoss || role == LossRole::kOwnGradient;
}

// The entries of all ranks that are one canonical tensor.
struct Group {
  TensorId id;
  Stages stages = Stages::kAny;
  MicrobatchUse microbatches = MicrobatchUse::kNone;
  LossRole loss = LossRole::kNone;
  bool expert = false;           // the tensor lies on one coordinate of the expert axis
  bool owned = false;            // it lies on one coordinate of the axes of slices
  bool of_sample = false;        // so it does as an element of a list, or a call, of one sample
  bool sum_occurrences = false;  // a tied parameter's gradient, whose occurrences are terms
  const TensorPlacement* placement = nullptr;
  const Shape* reference = nullptr;  // the shape of the reference's tensors of this name and kind; null: it has none
  std::vector<Shard> shards;  // by rank; none where only inner stages hold a tensor of a module that spans the stages
};

// Groups are small work: so many are a task of a thread.
inline constexpr std::size_t kGroupsATask = 256;

// One recorded tensor whose rows are tokens that a router has sent here.
struct RowShard {
  const PresentRank* holder = nullptr;
  const Entry* entry = nullptr;
  std::string name;  // canonical
  const TensorPlacement* placement = nullptr;
};

struct Grouping {
  std::vector<Group> groups;                                           // by id
  std::map<std::pair<std::string, Kind>, TensorPlacement> placements;  // by canonical name and kind
  std::map<const RecordedMapping*, TensorPlacement> recorded;          // by the mapping that the program recorded
  std::deque<TensorPlacement> by_shape;                                // of groups about which the shapes say more
  std::vector<RowShard> rows;                                          // tensors of routed tokens
  std::set<TensorId> local;  // tensors that a rule, or what they hold, calls local
  NotSeenTensors not_seen;
  Pipeline pipeline;
  Experts experts;
  Microbatches microbatches;
  std::vector<Finding> findings;  // about model chunks and micro-batches that no rank ran
};

// `census` is of the table, on the axes of these annotations, which must outlive the result; `threads` as in `parallel_for`. Throws InputError as
// `align` does.
Grouping group_shards(const RankTable& table, const Census& census, const ResolvedAnnotations& annotations,
                      const ModelLayout& layout, int threads);

}  // namespace ttrace
