#include "align/shard_mapping.h"

#include <doctest/doctest.h>

#include "base/layout.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// Every rank holds the same tensor, or its shard of it.
Trace everywhere(const std::string& mesh, std::int32_t world_size, const TensorId& id, const Shape& shape) {
  Trace trace = mesh_trace(mesh, world_size);
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) add_tensor(trace, rank, id, shape);
  return trace;
}

const TensorId kWeight = tensor_id(Kind::kParam, "linear_qkv.weight");

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("tensor-parallel shards become one tensor, data-parallel copies its replicas") {
  const Trace trace = everywhere("tp=2,dp=2", 4, kWeight, {4, 3});
  const Alignment alignment = align(trace, annotations("linear_qkv.weight: {tp_dim: 0}"), {});
  const LogicalTensor& tensor = only_tensor(alignment);
  CHECK(tensor.shape == Shape{8, 3});
  CHECK(tensor.annotated);
  REQUIRE(tensor.pieces().size() == 4);
  const Piece second = tensor.pieces()[1];
  CHECK(second.rank == 1);
  CHECK(second.replica == 0);
  CHECK(second.offset == 0);
  CHECK(second.strides == Shape{3, 1});
  CHECK(second.logical == Box{{4, 0}, {4, 3}});
  CHECK(tensor.pieces()[2].rank == 2);
  CHECK(tensor.pieces()[2].replica == 1);
  CHECK(second.data == trace.ranks[1].bytes_of(trace.ranks[1].entries[0]));
}

TEST_CASE("a partial value is a sum of terms") {
  const Trace trace = everywhere("tp=2,dp=2,sp=tp", 4, tensor_id(Kind::kParamGrad, "norm.weight", 0), {6});
  const Alignment alignment = align(trace, annotations("norm.weight: {param_grad: {sp: partial}}"), {});
  // dp ranks run different micro-batches.
  REQUIRE(alignment.tensors.size() == 2);
  const LogicalTensor& tensor = alignment.tensors.begin()->second;
  REQUIRE(tensor.pieces().size() == 2);
  CHECK(tensor.pieces()[0].term == 0);
  CHECK(tensor.pieces()[1].term == 1);
  CHECK(tensor.pieces()[1].replica == 0);
}

TEST_CASE("the gradient of a partial value is the same on all ranks") {
  const Trace trace = everywhere("tp=2", 2, tensor_id(Kind::kGradOutput, "experts"), {4});
  const LogicalTensor tensor = only_tensor(align(trace, annotations("experts: {output: {tp: partial}}"), {}));
  CHECK(tensor.pieces()[1].replica == 1);
  CHECK(tensor.pieces()[1].term == 0);
}

TEST_CASE("an alias splits along the axis it shares") {
  const Trace trace = everywhere("tp=2,sp=tp", 2, tensor_id(Kind::kOutput, "norm"), {4, 1, 8});
  const LogicalTensor tensor = only_tensor(align(trace, annotations("norm: {output: {sp_dim: 0}}"), {}));
  CHECK(tensor.shape == Shape{8, 1, 8});
}

TEST_CASE("a well-known axis that the trace lacks has size 1") {
  const Trace trace = everywhere("tp=2", 2, tensor_id(Kind::kOutput, "norm"), {4, 8});
  const LogicalTensor tensor = only_tensor(align(trace, annotations("norm: {output: {cp_dim: 0, tp_dim: -1}}"), {}));
  CHECK(tensor.shape == Shape{4, 16});
}

TEST_CASE("micro-batches interleave over data-parallel ranks, or come in blocks") {
  Trace trace = mesh_trace("dp=2", 2);
  for (const std::int32_t m : {0, 1}) {
    for (const std::size_t rank : {0, 1}) add_tensor(trace, rank, tensor_id(Kind::kOutput, "mlp", m), {2});
  }
  const auto rank_of = [&](const std::string& text, std::int32_t microbatch) {
    const Alignment alignment = align(trace, annotations(text), {});
    const auto found = alignment.tensors.find(tensor_id(Kind::kOutput, "mlp", microbatch));
    REQUIRE(found != alignment.tensors.end());
    REQUIRE(found->second.pieces().size() == 1);
    return std::pair(found->second.pieces()[0].rank, found->second.pieces()[0].entry->id.microbatch);
  };
  CHECK(rank_of("", 2) == std::pair(0, 1));
  CHECK(rank_of("", 1) == std::pair(1, 0));
  CHECK(rank_of("parallelism: {microbatches: {order: blocked}}", 2) == std::pair(1, 0));
  CHECK(rank_of("parallelism: {microbatches: {order: blocked}}", 1) == std::pair(0, 1));
}

TEST_CASE("ranks that ran fewer micro-batches leave holes, which are reported") {
  Trace trace = mesh_trace("dp=2", 2);
  add_tensor(trace, 0, tensor_id(Kind::kOutput, "mlp", 0), {2});
  for (const std::int32_t m : {0, 1, 2}) add_tensor(trace, 1, tensor_id(Kind::kOutput, "mlp", m), {2});
  const Alignment alignment = align(trace, {}, {});
  CHECK(only_finding(alignment).reason == Reason::kOmission);
  CHECK(only_finding(alignment).message ==
        "iteration 0: 2 of 6 micro-batches (2, 4) were run by no rank: along dp the ranks ran 1, 3 of them");
  CHECK(only_finding(alignment).ranks == std::vector<std::int32_t>{0});
  CHECK(alignment.tensors.size() == 4);
  // In blocks there is no hole: rank 1's start after rank 0's single one.
  const Alignment blocked = align(trace, annotations("parallelism: {microbatches: {order: blocked}}"), {});
  CHECK(blocked.findings.empty());
  CHECK(blocked.tensors.rbegin()->first.microbatch == 3);
}

TEST_CASE("a batch cut over dp is one micro-batch where the rule names dp") {
  const Trace trace = everywhere("dp=2", 2, tensor_id(Kind::kOutput, "mlp", 0), {3, 8});
  const LogicalTensor tensor = only_tensor(align(trace, annotations("mlp: {output: {dp_dim: 0}}"), {}));
  CHECK(tensor.shape == Shape{6, 8});
}

TEST_CASE("a tensor need only be on some stages") {
  Trace trace = mesh_trace("tp=2,pp=2", 4);
  for (const std::size_t rank : {0, 1}) add_tensor(trace, rank, tensor_id(Kind::kOutput, "embedding"), {2});
  CHECK(only_tensor(align(trace, {}, {})).pieces().size() == 2);
}

TEST_CASE("a missing shard is named with its range and rank") {
  Trace trace = mesh_trace("tp=2,dp=2", 4);
  for (const std::size_t rank : {0, 1, 2}) add_tensor(trace, rank, kWeight, {4, 3});
  const Alignment alignment = align(trace, annotations("linear_qkv.weight: {tp_dim: 0}"), {});
  CHECK(alignment.tensors.empty());
  CHECK(only_finding(alignment).verdict == Verdict::kMissing);
  CHECK(only_finding(alignment).reason == Reason::kOmission);
  CHECK(only_finding(alignment).ranks == std::vector<std::int32_t>{3});
  CHECK(only_finding(alignment).message ==
        "linear_qkv.weight param, iteration 0: not there: [4:8, 0:3] of rank 3 (tp=1, dp=1)");
}

TEST_CASE("a missing rank is reported once, and what it should hold is missing") {
  Trace trace = everywhere("tp=2", 2, kWeight, {4});
  trace.ranks.erase(trace.ranks.begin());
  const Alignment alignment = align(trace, annotations("linear_qkv.weight: {tp_dim: 0}"), {});
  REQUIRE(alignment.findings.size() == 2);
  CHECK(alignment.findings[0].reason == Reason::kMissingRank);
  CHECK(alignment.findings[0].message == "rank 0 of 2 left no file in trace");
  CHECK(alignment.findings[0].ranks == std::vector<std::int32_t>{0});
  CHECK(alignment.findings[1].message ==
        "linear_qkv.weight param, iteration 0: not there: [0:4] of rank 0 (tp=0, its file is missing)");
}

TEST_CASE("a duplicate rank and one that crashed are findings") {
  Trace trace = everywhere("tp=2", 2, kWeight, {4});
  trace.ranks.push_back(trace.ranks[1]);
  trace.ranks[2].path = "trace/copy.h5";
  trace.ranks[0].complete = false;
  const Alignment alignment = align(trace, annotations("linear_qkv.weight: {tp_dim: 0}"), {});
  REQUIRE(alignment.findings.size() == 2);
  CHECK(alignment.findings[0].verdict == Verdict::kFail);
  CHECK(alignment.findings[0].reason == Reason::kDuplicateRank);
  CHECK(alignment.findings[0].message ==
        "rank 1 appears twice, in trace/rank-00001.h5 and in trace/copy.h5: two processes took themselves for the same "
        "rank");
  CHECK(alignment.findings[1].reason == Reason::kIncompleteRank);
  CHECK(alignment.findings[1].message ==
        "rank 0 did not finish: no completion mark; only what it recorded until then is there");
  CHECK(alignment.tensors.size() == 1);
}

TEST_CASE("a tensor recorded twice by one rank is a finding") {
  Trace trace = everywhere("tp=2", 2, kWeight, {4});
  add_tensor(trace, 1, kWeight, {4});
  const Finding finding = only_finding(align(trace, {}, {}));
  CHECK(finding.reason == Reason::kDuplicateTensor);
  CHECK(finding.message == "linear_qkv.weight param, iteration 0: recorded more than once by rank 1");
}

TEST_CASE("shards that do not fit together are named with their shapes") {
  Trace trace = mesh_trace("tp=2,dp=2", 4);
  add_tensor(trace, 0, kWeight, {4, 3});
  add_tensor(trace, 1, kWeight, {5, 3});
  add_tensor(trace, 2, kWeight, {4, 3});
  add_tensor(trace, 3, kWeight, {5, 2});
  Finding finding = only_finding(align(trace, annotations("linear_qkv.weight: {tp_dim: 0}"), {}));
  CHECK(finding.verdict == Verdict::kFail);
  CHECK(finding.reason == Reason::kShapeMismatch);
  CHECK(finding.message ==
        "linear_qkv.weight param, iteration 0: shards do not fit together in dimension "
        "1: [4, 3] on ranks 0, 2; [5, 2] on rank 3; [5, 3] on rank 1");
  trace = everywhere("tp=2", 2, kWeight, {4});
  trace.ranks[1].entries[0].dtype = Dtype::kInt32;
  finding = only_finding(align(trace, {}, {}));
  CHECK(finding.message ==
        "linear_qkv.weight param, iteration 0: shards differ in dtype: float32 on rank 0; int32 on rank 1");
  trace = everywhere("tp=2", 2, kWeight, {4});
  trace.ranks[1].entries[0].shape = {2, 2};
  finding = only_finding(align(trace, {}, {}));
  CHECK(finding.message ==
        "linear_qkv.weight param, iteration 0: shards differ in their number of dimensions: [2, 2] on rank 1; [4] on "
        "rank 0");
}

TEST_CASE("a layout that fills elements twice, or leaves some out, is caught") {
  const auto shifted = [](const AxisParts& parts) {
    AxisLayout layout = contiguous(parts);
    for (std::size_t i = 1; i < layout.parts.size(); ++i) layout.parts[i][0].logical -= 1;
    return layout;
  };
  register_layout("test-shifted", {shifted, {}});
  const Trace trace = everywhere("tp=2", 2, kWeight, {4});
  const Alignment alignment = align(trace, annotations("linear_qkv.weight: {tp: {dim: 0, layout: test-shifted}}"), {});
  CHECK(alignment.tensors.empty());
  REQUIRE(alignment.findings.size() == 2);
  CHECK(alignment.findings[0].reason == Reason::kOmission);
  CHECK(alignment.findings[0].message == "linear_qkv.weight param, iteration 0: no rank holds [7:8] of [8]");
  CHECK(alignment.findings[1].reason == Reason::kOverlap);
  CHECK(alignment.findings[1].message ==
        "linear_qkv.weight param, iteration 0: filled more than once: [3:4] by ranks 0, 1");
}

TEST_CASE("annotations that contradict the trace are refused, with the line") {
  const Trace trace = everywhere("tp=2,dp=2,pp=2,sp=tp", 8, tensor_id(Kind::kOutput, "linear_qkv"), {2, 2, 2});
  CHECK(error_of(trace, "\nlinear_qkv.weight:\n  tq_dim: 0\n") ==
        "gpt.yaml:3: 'linear_qkv.weight': axis 'tq' is not an axis of the trace [dp, pp, sp, tp]");
  CHECK(error_of(trace, "linear_qkv:\n  output:\n    tp_dim: 3\n") ==
        "gpt.yaml:3: 'linear_qkv': output: dim 3 is out of range for linear_qkv of shape [2, 2, 2]; expected -3 to 2");
  CHECK(error_of(trace, "linear_qkv:\n  output: {cp_dim: -4}\n") ==
        "gpt.yaml:2: 'linear_qkv': output: dim -4 is out of range for linear_qkv of shape [2, 2, 2]; expected -3 to 2");
  CHECK(error_of(trace, "linear_qkv: {output: {sp_dim: 0, tp_dim: 1}}") ==
        "gpt.yaml:1: 'linear_qkv': output: 'sp' and 'tp' are one axis of the trace; expected it once");
  CHECK(error_of(trace, "x: {tp: {dim: 0, layout: zagzig}}")
            .starts_with("gpt.yaml:1: 'x': tp: there is no layout 'zagzig'; expected one of contiguous"));
  CHECK(error_of(trace, "parallelism: {loss_scale: dpp}") ==
        "gpt.yaml:1: 'parallelism': loss_scale: axis 'dpp' is not an axis of the trace [dp, pp, sp, tp]");
  CHECK(error_of(trace, "parallelism: {pipeline: {axis: qq, layers: layers}}") ==
        "gpt.yaml:1: 'parallelism': pipeline: axis 'qq' is not an axis of the trace [dp, pp, sp, tp]");
  CHECK(error_of(trace, "parallelism: {microbatches: {axis: dq}}") ==
        "gpt.yaml:1: 'parallelism': microbatches: axis 'dq' is not an axis of the trace [dp, pp, sp, tp]");
  const Trace scalar = everywhere("tp=2", 2, tensor_id(Kind::kScalar, "loss"), {});
  CHECK(error_of(scalar, "loss: {scalar: {tp_dim: 0}}") ==
        "gpt.yaml:1: 'loss': scalar: dim 0 is out of range for loss of shape []; expected no sharding of a scalar");
}

TEST_CASE("a mesh that contradicts itself is refused") {
  Trace trace = mesh_trace("tp=2", 2);
  trace.ranks[1].coordinates = {{"tp", 0}};
  CHECK(error_of(trace, "") == "trace: ranks 0 and 1 have the same coordinates [0]; expected each place once");
  trace.ranks[1].coordinates = {{"tp", 2}};
  CHECK(error_of(trace, "") == "trace/rank-00001.h5: rank 1 has 2 coordinate on axis 'tp'; expected 0 to 1");
  trace.ranks[1].coordinates = {};
  CHECK(error_of(trace, "") == "trace/rank-00001.h5: rank 1 has no coordinate on axis 'tp'; expected 0 to 1");
  trace.world_size = 3;
  CHECK(error_of(trace, "") == "trace: the axes 'tp=2' do not make 3 ranks; expected sizes whose product is that");
}

TEST_CASE("the declared loss scale applies to the loss and what backward makes of it") {
  Trace trace = mesh_trace("dp=2", 2);
  const std::vector<std::pair<TensorId, double>> cases = {
      {tensor_id(Kind::kScalar, "loss", 0), 2},      {tensor_id(Kind::kScalar, "loss#1", 0), 2},
      {tensor_id(Kind::kScalar, "grad_norm"), 1},    {tensor_id(Kind::kGradOutput, "mlp", 0), 2},
      {tensor_id(Kind::kGradInput, "mlp", 0), 2},    {tensor_id(Kind::kParamGrad, "mlp.weight", 0), 2},
      {tensor_id(Kind::kMainGrad, "mlp.weight"), 1}, {tensor_id(Kind::kOutput, "mlp", 0), 1}};
  for (const auto& [id, scale] : cases) {
    for (const std::size_t rank : {0, 1}) add_tensor(trace, rank, id, {});
  }
  const Alignment alignment = align(trace, annotations("parallelism: {loss_scale: dp*cp}"), {});
  for (const auto& [id, scale] : cases) CHECK(alignment.tensors.at(id).scale == scale);
  const Alignment inverse = align(trace, annotations("parallelism: {loss_scale: 1/dp}"), {});
  CHECK(inverse.tensors.at(cases[0].first).scale == 0.5);
}

TEST_CASE("patterns that place nothing and tensors that no pattern places are noted") {
  Trace trace = everywhere("tp=2", 2, tensor_id(Kind::kOutput, "mlp"), {2});
  const Alignment alignment = align(trace, annotations("mlp:\n  tp_dim: 0\nattention:\n  output: {tp_dim: 0}\n"), {});
  CHECK(alignment.notes ==
        std::vector<std::string>{"gpt.yaml:1: 'mlp' places no tensor of the trace",
                                 "gpt.yaml:3: 'attention' places no tensor of the trace",
                                 "no rule places these, taken as replicated on every axis: mlp output"});
  CHECK_FALSE(alignment.tensors.begin()->second.annotated);
}

TEST_SUITE_END();
