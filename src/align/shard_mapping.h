// The canonical shard mapping (TTrace, section 4.1). It says which box of which rank's tensor is which box of the
// logical tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/annotation.h"
#include "base/finding.h"
#include "base/not_seen.h"
#include "base/trace.h"

namespace ttrace {

// The box `logical` of the logical tensor, held by one rank. Its first element lies `offset` elements after the entry's
// first. There is one stride for each dimension of the logical tensor, in elements of the entry.
// The logical value of an element is the sum over `term` of the pieces that hold it in one `replica`; replicas
// hold the same value. Term 0 of replica 0 fills the whole tensor; others may fill part of it.
struct Piece {
  std::int32_t rank = 0;
  const Entry* entry = nullptr;      // owned by the Trace
  const std::byte* data = nullptr;   // the entry's first byte, or its sketch's
  const MappedFile* file = nullptr;  // the file that holds the entry, to release its pages; may be null
  Box logical;
  std::int64_t offset = 0;
  Shape strides;
  std::int32_t replica = 0;
  std::int32_t term = 0;

  const std::byte* elements() const {  // `data`; throws RecordedAsSketch where it is none of the tensor's
    if (entry->sketch) throw RecordedAsSketch(*entry);
    return data;
  }
};

// Of a tensor [tokens, columns] that is another one, [.., columns], without some of its tokens.
struct KeptTokens {
  Shape whole;                                         // of the other one, whose tokens are counted row-major
  std::function<std::int64_t(std::int64_t)> token_at;  // which of these is at an index of dimension 0 here
};

struct LogicalTensor {
  TensorId id;  // canonical: global layer numbers, global micro-batch, chunk 0
  Dtype dtype = Dtype::kFloat32;
  Shape shape;
  std::uint64_t order = 0;  // the smallest order of the entries
  double scale = 1;         // recorded = scale * logical (declared in the annotations)
  SharedValue<std::string> module_class;
  // Makes the pieces, by replica, term, logical start. They are not kept: thousands of ranks, or stripes of
  // one token, have too many.
  std::function<std::vector<Piece>()> pieces = [] { return std::vector<Piece>(); };
  // Where present, only these rows of dimension 0 are held, each of them whole. They are sorted.
  std::optional<std::vector<std::int64_t>> rows;
  std::shared_ptr<const RouterRule> router;  // where there are `rows`: what chose them; else null
  // Where it is not 0, the tensor holds the tokens of several experts, of so many that there are, and the row of a
  // token at an expert is token * routed_experts + expert.
  std::int64_t routed_experts = 0;
  std::shared_ptr<const KeptTokens> kept;  // where tokens were left out; else null
  std::uint64_t bytes = 0;                 // the size of the recorded tensors that hold the elements
  bool sketched = false;                   // some of them were recorded as sketches
  std::size_t factoring = 0;  // the factoring on whose axes the shards lie: an index into `factorings_of` the mesh
  bool annotated = false;     // some rule, or the recording program, said where it lies
  // What neither of them said: along which axes the shapes of the shards, or the slices of the batch, place it so.
  std::vector<AxisPlacement> deduced;
  std::string doubt;  // one sentence, where its shape fits no placement, or several: which line would say it
};

// With the tokens that were left out.
inline const Shape& whole_shape_of(const LogicalTensor& tensor) {
  return tensor.kept ? tensor.kept->whole : tensor.shape;
}

// The result of aligning one trace. `findings` hold what the training code may have caused: missing and
// duplicate ranks, omissions, overlaps, shards that do not fit. A tensor with an omission or overlap is
// in `findings`, not in `tensors`.
struct Alignment {
  std::map<TensorId, LogicalTensor> tensors;
  std::vector<Finding> findings;
  std::set<TensorId> local;        // declared to describe the rank's own layout: not compared
  NotSeenTensors not_seen;         // may be named in `findings` as well: some ranks saw their shard
  Aliases aliases;                 // of the mesh, or what the shapes say of them
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

// The pieces point into the trace: `AlignedTrace` holds both. Throws InputError when the annotations
// contradict the trace (an axis that it lacks, a dim out of range for a matching tensor, layers that do not
// divide into the stages) or the trace's mesh contradicts itself. `threads`: 0 is OpenMP's default; the alignment, or
// the error, is the same for any number.
Alignment align(const Trace& trace, const Annotations& given, const ModelLayout& layout, int threads = 0);

}  // namespace ttrace
