// The logical tensors of one trace, which `align` (align/shard_mapping.h) makes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/finding.h"
#include "base/logical_tensor.h"
#include "base/mesh.h"
#include "base/not_seen.h"

namespace ttrace {

// How many micro-batches both sides run of one batch, and how many samples each of these has.
struct CutOfBatch {
  std::int64_t reference = 1, candidate = 1;
  bool is_same_batch = true;  // as what the models are given says; else nothing tells which is which
  std::int64_t reference_samples = 0, candidate_samples = 0;  // of a micro-batch; 0: not all have as many
};

// The result of aligning one trace. `findings` hold what the training code may have caused: missing and
// duplicate ranks, omissions, overlaps, shards that do not fit. A tensor with an omission or overlap is
// in `findings`, not in `tensors`.
struct Alignment {
  std::map<TensorId, LogicalTensor> tensors;
  std::vector<Finding> findings;
  std::set<TensorId> local;  // declared to describe the rank's own layout: not compared
  NotSeenTensors not_seen;   // may be named in `findings` as well: some ranks saw their shard
  Aliases aliases;           // of the mesh, or what the shapes say of them
  bool of_one_rank = false;  // every `order` is of one rank's execution
  // By micro-batch, the ranks that padded it to fewer positions than the reference: to the longest of their own samples.
  std::map<MicrobatchKey, std::set<std::int32_t>> padded_shorter;
  // Of the candidate: the iterations in which one side's micro-batches were put into the other's larger ones
  // (correspond/join_microbatches.h), and the tensors of these that could not be.
  std::map<std::int32_t, CutOfBatch> joined;
  std::set<TensorId> apart;
  bool slices = false;             // the ranks along the micro-batch axes run slices of every micro-batch
  std::string open_order;          // the micro-batch axes, where nothing tells which ones their ranks run; else empty
  std::vector<std::string> notes;  // patterns that matched nothing, tensors that no rule matched
};

// True when the finding is about a tensor that is not whole, and the trace says that it could not record it.
bool is_not_seen(const Alignment& alignment, const Finding& finding);

// The sizes of the model, which the reference knows and the candidate is measured against. Empty when aligning the
// reference.
struct ModelLayout {
  std::map<std::string, std::int64_t> layer_counts = {};      // "decoder.layers" -> number of layers
  std::map<std::pair<std::string, Kind>, Shape> shapes = {};  // by name and kind
  std::map<std::int32_t, std::int64_t> microbatches = {};     // by iteration, how many
  const Alignment* reference = nullptr;                       // must outlive the layout
};

ModelLayout layout_of(const Alignment& reference);

}  // namespace ttrace
