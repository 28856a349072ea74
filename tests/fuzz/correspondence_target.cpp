// Correspondence files, and where they move the pieces of a candidate's tensors.
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "correspond/translate.h"
#include "files/correspondence_file.h"
#include "support/mesh_trace.h"
#include "target.h"

namespace ttrace::fuzz {
namespace {

using test::add_tensor;
using test::tensor_id;

// Two layers of one model: q, k and v apart and [batch, sequence] first, or fused and [sequence, batch] first.
Trace trace_of_one() {
  Trace trace = test::mesh_trace("tp=1", 1);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name : {"q", "k", "v"}) {
      add_tensor(trace, 0, tensor_id(Kind::kParam, layer + "attn." + name + ".weight"), {4, 6});
      add_tensor(trace, 0, tensor_id(Kind::kOutput, layer + "attn." + name, 0), {2, 3, 4});
    }
    add_tensor(trace, 0, tensor_id(Kind::kInput, layer + "attn", 0), {2, 3, 6});
    add_tensor(trace, 0, tensor_id(Kind::kMainGrad, layer + "norm.weight"), {6});
    for (const char* expert : {"0", "1"}) {
      add_tensor(trace, 0, tensor_id(Kind::kParam, layer + "experts." + expert + ".weight"), {2, 6});
    }
  }
  add_tensor(trace, 0, tensor_id(Kind::kScalar, "loss", 0), {});
  return trace;
}

Trace trace_of_two() {
  Trace trace = test::mesh_trace("dp=2", 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const std::string layer : {"decoder.0.", "decoder.1."}) {
      add_tensor(trace, rank, tensor_id(Kind::kParam, layer + "attention.qkv.weight"), {12, 6});
      add_tensor(trace, rank, tensor_id(Kind::kOutput, layer + "attention.qkv", 0), {3, 2, 12});
      add_tensor(trace, rank, tensor_id(Kind::kInput, layer + "attention", 0), {3, 2, 6});
      add_tensor(trace, rank, tensor_id(Kind::kMainGrad, layer + "norm.weight"), {8});
      add_tensor(trace, rank, tensor_id(Kind::kParam, layer + "experts.weight"), {2, 6, 2});
    }
    add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", 0), {});
  }
  return trace;
}

// A piece lies in its tensor and in the memory of its entry, and no two of a term hold the same element.
void require_sound(const LogicalTensor& tensor) {
  std::set<std::tuple<std::int32_t, std::int32_t, Shape>> held;
  for (const Piece& piece : tensor.pieces()) {
    if (piece.logical.size.size() != tensor.shape.size() || piece.strides.size() != tensor.shape.size()) {
      fail_promise("a piece has other dimensions than its tensor");
    }
    for (std::size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      const std::int64_t start = piece.logical.start[dim], end = start + piece.logical.size[dim];
      if (start < 0 || end < start || end > tensor.shape[dim]) fail_promise("a piece lies outside of its tensor");
    }
    const std::int64_t elements = element_count(piece.entry->shape);
    for (std::int64_t i = 0; i < element_count(piece.logical.size); ++i) {
      Shape index = index_at(i, piece.logical.size);
      const std::int64_t at = std::inner_product(index.begin(), index.end(), piece.strides.begin(), piece.offset);
      if (at < 0 || at >= elements) fail_promise("a piece lies outside of what was recorded");
      for (std::size_t dim = 0; dim < index.size(); ++dim) index[dim] += piece.logical.start[dim];
      if (!held.insert({piece.replica, piece.term, index}).second) fail_promise("an element is held twice");
    }
  }
}

}  // namespace

Outcome fuzz_correspondence(std::string_view input) {
  static const Trace one = trace_of_one(), two = trace_of_two();
  if (!input.empty() && input[0] == '\1') {
    try {
      parse_index_pattern(input.substr(1));
      return Outcome::kSame;
    } catch (const PatternError&) {
      return Outcome::kFound;
    }
  }
  const Correspondence correspondence = parse_correspondence(std::string(input), "fuzz.yaml");
  const AlignedTrace reference = align_trace(one, {});
  const std::size_t side = side_of_reference(correspondence, *reference.trace, two);
  const Alignment model = in_names_of_candidate(correspondence, side, reference, two);
  const AlignedTrace candidate = align_trace(two, {}, layout_of(model));
  const Translation translation = translate(correspondence, side, reference, candidate);
  for (const auto& [id, tensor] : model.tensors) require_sound(tensor);
  for (const auto& [id, tensor] : translation.candidate.tensors) require_sound(tensor);
  for (const auto& [id, tensor] : translation.reference.tensors) require_sound(tensor);
  return translation.candidate.tensors.empty() ? Outcome::kFound : Outcome::kSame;
}

}  // namespace ttrace::fuzz
