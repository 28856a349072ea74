// A logical tensor, the tensor as one process would have it, and the pieces of ranks' files that make it up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/annotation.h"
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
  Shape whole;                                               // of the other one, whose tokens are counted row-major
  std::shared_ptr<const std::vector<std::int64_t>> dropped;  // those of its tokens that are left out, ascending

  // Returns which of the other one's tokens is at an index of dimension 0 here.
  std::int64_t token_at(std::int64_t index) const {
    for (const std::int64_t other : *dropped) index += other <= index ? 1 : 0;
    return index;
  }
};

struct Finding;

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
  bool light = false;                      // some of them are of a light iteration
  std::size_t factoring = 0;  // the factoring on whose axes the shards lie: an index into `factorings_of` the mesh
  bool annotated = false;     // some rule, or the recording program, said where it lies
  // What neither of them said: along which axes the shapes of the shards, or the slices of the batch, place it so.
  std::vector<AxisPlacement> deduced;
  // The shapes are all that speaks for this place: neither a rule nor the program says it, and no bytes prove it.
  bool guessed = false;
  // Where ranks lack the last element of samples, the finding that this is a mistake; null elsewhere. It may be right.
  std::shared_ptr<const Finding> truncated;
  std::string doubt;  // one sentence, where its shape fits no placement, or several: which line would say it
};

// With the tokens that were left out.
inline const Shape& whole_shape_of(const LogicalTensor& tensor) {
  return tensor.kept ? tensor.kept->whole : tensor.shape;
}

}  // namespace ttrace
