// The preset for Megatron's GPT against the shapes that such a program has on its ranks.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "align/shard_mapping.h"
#include "files/annotation_file.h"
#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

constexpr std::int64_t kSeq = 8, kBatch = 2, kHidden = 16, kHeads = 4, kVocab = 32;

// A rank's sizes: `s` where activations are split along the sequence, `h`, `v`, `heads` where over tp.
struct Sizes {
  std::int64_t tp = 1;
  bool sp = false;
  std::int64_t s() const { return sp ? kSeq / tp : kSeq; }
  Shape residual() const { return {s(), kBatch, kHidden}; }
  Shape split(std::int64_t width) const { return {kSeq, kBatch, width / tp}; }
};

class Model {
 public:
  Model(const std::string& mesh, std::int32_t world, Sizes sizes) : trace(mesh_trace(mesh, world)), sizes_(sizes) {}

  // One rank's part of a model with `layers` layers on each stage, one micro-batch.
  void record(std::size_t rank, std::int64_t layers, bool first, bool last) {
    rank_ = rank;
    if (first) {
      activation("embedding.word_embeddings", {kBatch, kSeq}, {kBatch, kSeq, kHidden});
      activation("embedding.position_embeddings", {kBatch, kSeq}, {kBatch, kSeq, kHidden});
      activation("embedding", {kBatch, kSeq}, sizes_.residual());
      parameter("embedding.word_embeddings.weight", {kVocab / sizes_.tp, kHidden});
      parameter("embedding.position_embeddings.weight", {kSeq, kHidden});
    }
    for (const std::string member : {":0", ":1"}) integers("(model)" + member, {kBatch, kSeq});
    const Shape flowing_out = last ? Shape{kBatch, kSeq} : sizes_.residual();
    for (const Kind kind : {Kind::kOutput, Kind::kGradOutput}) {
      add_tensor(trace, rank_, tensor_id(kind, "(model)", 0), flowing_out);
    }
    if (!first) add_tensor(trace, rank_, tensor_id(Kind::kInput, "(model):2", 0), sizes_.residual());
    for (std::int64_t i = 0; i < layers; ++i) layer("decoder.layers." + std::to_string(i));
    activation("decoder", sizes_.residual(), sizes_.residual());
    if (!last) return;
    norm("decoder.final_layernorm");
    activation("output_layer", sizes_.residual(), sizes_.split(kVocab));
    parameter("output_layer.weight", {kVocab / sizes_.tp, kHidden});
    activation("cross_entropy", sizes_.split(kVocab), {kBatch, kSeq});
    integers("cross_entropy:1", {kBatch, kSeq});
  }

  Trace trace;

 private:
  void activation(const std::string& name, const Shape& input, const Shape& output) {
    for (const Kind kind : {Kind::kInput, Kind::kGradInput}) add_tensor(trace, rank_, tensor_id(kind, name, 0), input);
    for (const Kind kind : {Kind::kOutput, Kind::kGradOutput})
      add_tensor(trace, rank_, tensor_id(kind, name, 0), output);
  }

  void integers(const std::string& name, const Shape& shape) {
    add_tensor(trace, rank_, tensor_id(Kind::kInput, name, 0), shape);
    trace.ranks[rank_].entries.back().dtype = Dtype::kInt32;
  }

  void parameter(const std::string& name, const Shape& shape) {
    for (const Kind kind : {Kind::kParam, Kind::kMainGrad, Kind::kParamDelta, Kind::kParamAfter}) {
      add_tensor(trace, rank_, tensor_id(kind, name), shape);
    }
    add_tensor(trace, rank_, tensor_id(Kind::kParamGrad, name, 0), shape);
  }

  void norm(const std::string& name) {
    activation(name, sizes_.residual(), sizes_.residual());
    parameter(name + ".weight", {kHidden});
    parameter(name + ".bias", {kHidden});
  }

  void column(const std::string& name, std::int64_t width) {
    activation(name, sizes_.residual(), sizes_.split(width));
    parameter(name + ".weight", {width / sizes_.tp, kHidden});
    parameter(name + ".bias", {width / sizes_.tp});
  }

  void row(const std::string& name, std::int64_t width) {
    activation(name, sizes_.split(width), sizes_.residual());
    parameter(name + ".weight", {kHidden, width / sizes_.tp});
    parameter(name + ".bias", {kHidden});
  }

  void layer(const std::string& name) {
    activation(name, sizes_.residual(), sizes_.residual());
    norm(name + ".input_layernorm");
    activation(name + ".self_attention", sizes_.residual(), sizes_.residual());
    column(name + ".self_attention.linear_qkv", 3 * kHidden);
    const Shape heads = {kSeq, kBatch, kHeads / sizes_.tp, kHidden / kHeads};
    activation(name + ".self_attention.core_attention", heads, sizes_.split(kHidden));
    for (const std::string member : {":1", ":2"}) {
      add_tensor(trace, rank_, tensor_id(Kind::kInput, name + ".self_attention.core_attention" + member, 0), heads);
    }
    row(name + ".self_attention.linear_proj", kHidden);
    norm(name + ".pre_mlp_layernorm");
    activation(name + ".mlp", sizes_.residual(), sizes_.residual());
    column(name + ".mlp.linear_fc1", 4 * kHidden);
    activation(name + ".mlp.activation", sizes_.split(4 * kHidden), sizes_.split(4 * kHidden));
    row(name + ".mlp.linear_fc2", 4 * kHidden);
  }

  Sizes sizes_;
  std::size_t rank_ = 0;
};

const std::string kPreset = TTRACE_SOURCE_DIR "/annotations/megatron_gpt.yaml";

// The parallel program's tensors are the reference's, with the same shapes, and each is placed by a rule.
void check_same_model(const std::string& mesh, std::int32_t world, const Sizes& sizes, std::int64_t stages) {
  const Annotations preset = read_annotations({kPreset}, {});
  Model reference("", 1, {});
  reference.record(0, 4, true, true);
  const Alignment expected = align(reference.trace, preset, {});
  REQUIRE(expected.findings.empty());
  Model model(mesh, world, sizes);
  for (std::int32_t rank = 0; rank < world; ++rank) {
    const std::int64_t stage = rank / (world / stages);
    model.record(static_cast<std::size_t>(rank), 4 / stages, stage == 0, stage + 1 == stages);
  }
  const Alignment alignment = align(model.trace, preset, layout_of(expected));
  for (const Finding& finding : alignment.findings) CHECK(finding.message == "");
  std::map<std::string, Shape> shapes, expected_shapes;
  for (const auto& [id, tensor] : alignment.tensors) {
    CHECK(tensor.annotated);
    // Data-parallel ranks all record micro-batch 0, which makes several.
    if (id.microbatch <= 0) shapes[to_string(id)] = tensor.shape;
  }
  for (const auto& [id, tensor] : expected.tensors) expected_shapes[to_string(id)] = tensor.shape;
  CHECK(shapes == expected_shapes);
}

std::size_t terms_of(const Alignment& alignment, const TensorId& id) {
  std::set<std::int32_t> terms;
  for (const Piece& piece : alignment.tensors.at(id).pieces()) terms.insert(piece.term);
  return terms.size();
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("the Megatron preset places every tensor of a parallel GPT") {
  check_same_model("tp=2", 2, {2, false}, 1);
  check_same_model("tp=2,sp=tp", 2, {2, true}, 1);
  check_same_model("dp=2", 2, {}, 1);
  check_same_model("pp=2", 2, {}, 2);
  check_same_model("tp=4,dp=2,pp=2,sp=tp", 16, {4, true}, 2);
}

TEST_CASE("under sequence parallelism the gradients of layer norms and row-parallel biases are sums") {
  Model model("tp=2,sp=tp", 2, {2, true});
  for (const std::size_t rank : {0, 1}) model.record(rank, 1, true, true);
  const Alignment alignment = align(model.trace, read_annotations({kPreset}, {}), {});
  for (const std::string name :
       {"input_layernorm.weight", "pre_mlp_layernorm.bias", "mlp.linear_fc2.bias", "self_attention.linear_proj.bias"}) {
    CHECK(terms_of(alignment, tensor_id(Kind::kParamGrad, "decoder.layers.0." + name, 0)) == 2);
    CHECK(terms_of(alignment, tensor_id(Kind::kMainGrad, "decoder.layers.0." + name)) == 1);
  }
  CHECK(terms_of(alignment, tensor_id(Kind::kParamGrad, "decoder.final_layernorm.weight", 0)) == 2);
  CHECK(terms_of(alignment, tensor_id(Kind::kParamGrad, "decoder.layers.0.mlp.linear_fc1.bias", 0)) == 1);
}

TEST_SUITE_END();
