// Tensors that no rule places, by the shapes of their shards.
#include "align/by_shape.h"

#include <doctest/doctest.h>

#include <numeric>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

// Rows [from, from + rows) and columns likewise of a matrix whose elements count up from `first`.
std::vector<float> counted_block(std::int64_t width, Shape start, Shape size, float first = 1) {
  std::vector<float> values;
  for (std::int64_t row = start[0]; row < start[0] + size[0]; ++row) {
    for (std::int64_t column = start[1]; column < start[1] + size[1]; ++column) {
      values.push_back(first + static_cast<float>(row * width + column));
    }
  }
  return values;
}

// The reference's matrix of this shape.
Trace counted_reference(const std::vector<std::pair<TensorId, Shape>>& tensors) {
  Trace trace = mesh_trace("", 1);
  for (const auto& [id, shape] : tensors) add_tensor(trace, 0, id, shape, counted_block(shape[1], {0, 0}, shape));
  return trace;
}

// Adds to each rank its part of the matrix: `rows` and `columns` are the axes that split them, empty for none.
void add_parts(Trace& trace, const TensorId& id, const Shape& shape, const std::string& rows,
               const std::string& columns) {
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    const Coordinates& at = trace.ranks[rank].coordinates;
    Shape size = shape, start(2, 0);
    for (std::size_t d = 0; d < 2; ++d) {
      const std::string& axis = d == 0 ? rows : columns;
      if (axis.empty()) continue;
      size[d] /= size_of_axis(trace.mesh, axis);
      start[d] = at.at(axis) * size[d];
    }
    add_tensor(trace, rank, id, size, counted_block(shape[1], start, size));
  }
}

const TensorId kFcOutput = tensor_id(Kind::kOutput, "fc", 0);
const TensorId kFcWeight = tensor_id(Kind::kParam, "fc.weight");

Alignment aligned_with(const Trace& reference, const Trace& candidate, const std::string& text = "") {
  const Alignment expected = align(reference, annotations(text), {});
  return align(candidate, annotations(text), layout_of(expected));
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("parts that sum up to the reference's shape are placed without a rule") {
  const Trace reference = counted_reference({{kFcWeight, {4, 6}}, {kFcOutput, {2, 4}}});
  Trace candidate = mesh_trace("tp=2", 2);
  add_parts(candidate, kFcWeight, {4, 6}, "tp", "");
  add_parts(candidate, kFcOutput, {2, 4}, "", "tp");
  const Report report = checked(reference, candidate, "");
  CHECK(report.same());
  CHECK(report.totals.counts.pass == 2);
  CHECK(report.totals.placed_by_shape == 2);
  const Alignment alignment = aligned_with(reference, candidate);
  CHECK(alignment.notes == std::vector<std::string>{"placed by their shapes, tp splits dimension 0: fc.weight param",
                                                    "placed by their shapes, tp splits dimension 1: fc output"});
  const LogicalTensor& output = alignment.tensors.at(kFcOutput);
  REQUIRE(output.deduced.size() == 1);
  CHECK(output.deduced[0].axis == "tp");
  CHECK(output.deduced[0].dim == 1);
  CHECK_FALSE(output.annotated);
}

TEST_CASE("a wrong part of a tensor that its shape placed fails, and the finding says how it was placed") {
  const Trace reference = counted_reference({{kFcWeight, {4, 6}}});
  Trace candidate = mesh_trace("tp=2", 2);
  for (const std::size_t rank : {0, 1})
    add_tensor(candidate, rank, kFcWeight, {2, 6}, counted_block(6, {0, 0}, {2, 6}));
  const Report report = checked(reference, candidate, "");
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].reason == Reason::kExceedsTolerance);
  CHECK(has(report.findings[0].message,
            "; placed by its shape: tp splits dimension 0; where that is wrong, a line of the annotations says it: "
            "fc.weight: {tp: {dim: 0, layout: ...}}"));
}

TEST_CASE("where no bits tell stacked blocks the tensor fails by its shape, and passes by the line it asks for") {
  const TensorId gradient = kFcWeight.with_kind(Kind::kMainGrad);
  const Trace reference = counted_reference({{gradient, {4, 1}}});
  Trace candidate = mesh_trace("tp=2", 2);
  add_tensor(candidate, 0, gradient, {2, 1}, {1, 3});
  add_tensor(candidate, 1, gradient, {2, 1}, {2, 4});
  CHECK(findings_in(checked(reference, candidate, "")) ==
        std::vector<std::string>{"fc.weight main_grad: exceeds-tolerance"});
  CHECK(checked(reference, candidate, "fc.weight: {tp: {dim: 0, layout: stacked, blocks: [1, 1]}}").same());
}

TEST_CASE("uneven parts and nested axes are placed, the slower axis outermost") {
  const TensorId norm = tensor_id(Kind::kOutput, "norm", 0);
  const Trace reference = counted_reference({{kFcWeight, {5, 2}}, {norm, {8, 1}}});
  Trace candidate = mesh_trace("tp=2,cp=2", 4);
  for (const std::size_t rank : {0, 1, 2, 3}) {
    const std::int64_t tp = static_cast<std::int64_t>(rank) % 2, at = static_cast<std::int64_t>(rank / 2) * 4 + tp * 2;
    add_tensor(candidate, rank, kFcWeight, {3 - tp, 2}, counted_block(2, {tp * 3, 0}, {3 - tp, 2}));
    add_tensor(candidate, rank, norm, {2, 1}, counted_block(1, {at, 0}, {2, 1}));
  }
  const Report report = checked(reference, candidate, "");
  CHECK(findings_in(report).empty());
  CHECK(report.same());
}

TEST_CASE("of two axes that explain the shape, that one splits whose other's ranks hold the same bits") {
  const Trace reference = counted_reference({{kFcWeight, {4, 6}}});
  Trace candidate = mesh_trace("tp=2,cp=2", 4);
  add_parts(candidate, kFcWeight, {4, 6}, "cp", "");
  CHECK(checked(reference, candidate, "").same());
  CHECK(aligned_with(reference, candidate).tensors.at(kFcWeight).deduced.at(0).axis == "cp");
}

TEST_CASE("a shape that fits several placements is not guessed at: the finding lists the lines to choose from") {
  const TensorId scores = tensor_id(Kind::kOutput, "scores", 0);
  const Trace reference = counted_reference({{scores, {4, 4}}});
  Trace candidate = mesh_trace("tp=2,cp=2", 4);
  add_parts(candidate, scores, {4, 4}, "cp", "tp");
  const Report report = checked(reference, candidate, "");
  REQUIRE(report.findings.size() == 1);
  CHECK(
      report.findings[0].message ==
      "scores output, iteration 0, micro-batch 0: the reference has float32 [4, 4], the candidate float32 [2, 2]; its "
      "shape fits several placements; expected a rule with one of: output: {cp_dim: 1, tp_dim: 0}, "
      "output: {cp_dim: 0, tp_dim: 1}");
  CHECK(checked(reference, candidate, "scores: {output: {cp_dim: 0, tp_dim: 1}}").same());
}

TEST_CASE("an axis splits what it splits elsewhere, and a gradient lies as its value") {
  const TensorId scores = tensor_id(Kind::kOutput, "scores", 0), mask = tensor_id(Kind::kInput, "scores:mask", 0);
  const TensorId grad = tensor_id(Kind::kGradOutput, "scores", 0);
  const Trace reference = counted_reference({{scores, {6, 4}}, {grad, {6, 4}}, {mask, {6, 1}}});
  Trace candidate = mesh_trace("tp=2,cp=2", 4);
  add_parts(candidate, mask, {6, 1}, "cp", "");  // equal copies along tp tell that cp splits the 6
  add_parts(candidate, scores, {6, 4}, "cp", "tp");
  add_parts(candidate, grad, {6, 4}, "cp", "tp");
  CHECK(findings_in(checked(reference, candidate, "")).empty());  // what tp splits is then the 4
}

TEST_CASE("a gradient lies as its value also where the copies that a forgotten sum leaves differ") {
  const TensorId input = tensor_id(Kind::kInput, "fc", 0), grad = tensor_id(Kind::kGradInput, "fc", 0);
  const Trace reference = counted_reference({{input, {4, 6}}, {grad, {4, 6}}});
  const std::string slices = "parallelism: {microbatches: {order: slices}}";
  for (const bool summed : {true, false}) {
    CAPTURE(summed);
    Trace candidate = mesh_trace("tp=2,dp=2", 4);
    add_parts(candidate, input, {4, 6}, "dp", "");
    for (std::size_t rank = 0; rank < candidate.ranks.size(); ++rank) {
      const Coordinates& at = candidate.ranks[rank].coordinates;
      std::vector<float> part = counted_block(6, {at.at("dp") * 2, 0}, {2, 6});
      for (float& value : part) {
        if (!summed) value *= at.at("tp") == 0 ? 0.25F : 0.75F;
      }
      add_tensor(candidate, rank, grad, {2, 6}, part);
    }
    CHECK(aligned_with(reference, candidate, slices).tensors.at(grad).deduced.at(0).axis == "dp");
    CHECK(findings_in(checked(reference, candidate, slices)).size() == (summed ? 0 : 1));
  }
}

TEST_CASE("shards that no contiguous split explains are not placed") {
  const Trace reference = counted_reference({{kFcWeight, {5, 2}}});
  Trace candidate = mesh_trace("tp=2", 2);
  for (const std::size_t rank : {0, 1}) add_tensor(candidate, rank, kFcWeight, {2, 2});
  const Report report = checked(reference, candidate, "");
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].message ==
        "fc.weight param, iteration 0: the reference has float32 [5, 2], the candidate float32 [2, 2]; no rule places "
        "it, and no split over tp=2 makes its shards the reference's [5, 2]");
}

TEST_CASE("equal parts that are together longer than the reference end in padding, which is not compared") {
  const Trace reference = counted_reference({{kFcWeight, {5, 2}}, {kFcOutput, {3, 5}}});
  const auto candidate_with = [](float first_of_second) {
    Trace candidate = mesh_trace("tp=2", 2);
    add_tensor(candidate, 0, kFcWeight, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    add_tensor(candidate, 1, kFcWeight, {4, 2}, {first_of_second, 10, 99, 99, 99, 99, 99, 99});
    add_tensor(candidate, 0, kFcOutput, {3, 4}, {1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14});
    add_tensor(candidate, 1, kFcOutput, {3, 4}, {5, 99, 99, 99, 10, 99, 99, 99, 15, 99, 99, 99});
    return candidate;
  };
  const Trace right = candidate_with(9);
  CHECK(checked(reference, right, "").same());
  CHECK(aligned_with(reference, right).notes ==
        std::vector<std::string>{
            "placed by their shapes, tp splits dimension 0, padded behind the reference's end: fc.weight param",
            "placed by their shapes, tp splits dimension 1, padded behind the reference's end: fc output"});
  const Report wrong = checked(reference, candidate_with(8), "");
  CHECK(findings_in(wrong) == std::vector<std::string>{"fc.weight param: exceeds-tolerance"});
  CHECK(has(wrong.findings[0].message, "fc.weight: {tp: {dim: 0, layout: ..., unpadded: reference}}"));
}

TEST_CASE("unequal parts, parts as long as the whole, and slices of a batch are not taken to be padded") {
  const Trace reference = counted_reference({{kFcOutput, {5, 2}}});
  const auto differs = [&](const std::string& mesh, std::int64_t first, std::int64_t second) {
    Trace candidate = mesh_trace(mesh, 2);
    add_tensor(candidate, 0, kFcOutput, {first, 2}, counted_block(2, {0, 0}, {first, 2}));
    add_tensor(candidate, 1, kFcOutput, {second, 2}, counted_block(2, {first, 0}, {second, 2}));
    const std::string order = mesh == "dp=2" ? "parallelism: {microbatches: {order: slices}}" : "";
    return !checked(reference, candidate, order).same();
  };
  CHECK_FALSE(differs("tp=2", 3, 3));
  CHECK(differs("tp=2", 4, 3));
  CHECK(differs("tp=2", 6, 6));
  CHECK(differs("dp=2", 3, 3));
}

TEST_CASE(
    "parts that begin with the last elements of their neighbours are halos: values agree there, gradients add up") {
  const TensorId input = tensor_id(Kind::kInput, "conv", 0), gradient = tensor_id(Kind::kGradInput, "conv", 0);
  const Trace reference = counted_reference({{input, {1, 7}}, {gradient, {1, 7}}});
  const auto candidate_with = [&](float shared, float term) {
    Trace candidate = mesh_trace("cp=2", 2);
    add_tensor(candidate, 0, input, {1, 5}, {1, 2, 3, 4, 5});
    add_tensor(candidate, 1, input, {1, 5}, {3, shared, 5, 6, 7});
    add_tensor(candidate, 0, gradient, {1, 5}, {1, 2, 1, 1, term});
    add_tensor(candidate, 1, gradient, {1, 5}, {2, 3, 1, 6, 7});
    return candidate;
  };
  const Trace right = candidate_with(4, 4);
  CHECK(checked(reference, right, "").same());
  CHECK(aligned_with(reference, right).notes ==
        std::vector<std::string>{
            "placed by their shapes, cp splits dimension 1, halo, overlap: 3: conv grad_input, conv input"});
  const Report forgotten = checked(reference, candidate_with(4, 3), "");
  CHECK(findings_in(forgotten) == std::vector<std::string>{"conv grad_input: exceeds-tolerance"});
  CHECK(has(forgotten.findings[0].message, "conv: {grad_input: {cp: {dim: 1, layout: halo, overlap: 3}}}"));
  // Where neighbours do not agree nothing says that it is a halo; a line does.
  const std::string line = "conv: {input: {cp: {dim: 1, layout: halo, overlap: 3}}}";
  CHECK(findings_in(checked(reference, candidate_with(9, 4), line)) ==
        std::vector<std::string>{"conv input: replicas-disagree"});
  CHECK(aligned_with(reference, candidate_with(9, 4)).notes ==
        std::vector<std::string>{"placed by their shapes, cp splits dimension 1, padded behind the reference's end: "
                                 "conv grad_input, conv input"});
}

TEST_CASE("a parameter's bits tell blocks that are split each by itself; what lies as it does follows") {
  // Query heads 0 to 3 and the keys' and values' heads 0 and 1: a row each.
  const TensorId weight = tensor_id(Kind::kParam, "qkv.weight"), bias = tensor_id(Kind::kParam, "qkv.bias");
  const TensorId gradient = tensor_id(Kind::kMainGrad, "qkv.bias"), output = tensor_id(Kind::kOutput, "qkv", 0);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8}, zeros(8, 0), of_rank[] = {{1, 2, 5, 7}, {3, 4, 6, 8}};
  const auto trace_of = [&](Trace trace, const auto& own) {
    for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      const std::vector<float> part = own(rank);
      const auto size = std::ssize(part);
      std::vector<float> rows;
      for (const float value : part) rows.insert(rows.end(), {value, -value});
      add_tensor(trace, rank, weight, {size, 2}, rows);
      add_tensor(trace, rank, bias, {size}, std::vector<float>(part.size(), 0));
      add_tensor(trace, rank, gradient, {size}, part);
      add_tensor(trace, rank, output, {1, size}, part);
    }
    return trace;
  };
  const Trace reference = trace_of(mesh_trace("", 1), [&](std::size_t) { return values; });
  const Trace candidate = trace_of(mesh_trace("tp=2", 2), [&](std::size_t rank) { return of_rank[rank]; });
  CHECK(checked(reference, candidate, "").same());
  CHECK(aligned_with(reference, candidate).notes ==
        std::vector<std::string>{
            "placed by their shapes, tp splits dimension 0, stacked, blocks: [2, 1, 1]: qkv.bias main_grad, qkv.bias "
            "param, qkv.weight param",
            "placed by their shapes, tp splits dimension 1, stacked, blocks: [2, 1, 1]: qkv output"});
  // Rows of which nothing says that they are shares of blocks.
  const Trace otherwise = trace_of(mesh_trace("tp=2", 2), [&](std::size_t rank) {
    return rank == 0 ? std::vector<float>{1, 4, 5, 7} : std::vector<float>{2, 3, 6, 8};
  });
  for (const std::string& note : aligned_with(reference, otherwise).notes) CHECK_FALSE(has(note, "stacked"));
}

TEST_CASE("a part that is shorter than the overlap of others of its name makes no halo of them") {
  const TensorId long_one = tensor_id(Kind::kInput, "conv", 0), short_one = tensor_id(Kind::kInput, "conv", 1);
  const Trace reference = counted_reference({{long_one, {1, 7}}, {short_one, {1, 5}}});
  Trace candidate = mesh_trace("cp=2", 2);
  add_tensor(candidate, 0, long_one, {1, 5}, {1, 2, 3, 4, 5});
  add_tensor(candidate, 1, long_one, {1, 5}, {3, 4, 5, 6, 7});
  add_tensor(candidate, 0, short_one, {1, 2}, {1, 2});
  add_tensor(candidate, 1, short_one, {1, 6}, {1, 2, 3, 4, 5, 6});
  for (const std::string& note : aligned_with(reference, candidate).notes) CHECK_FALSE(has(note, "halo"));
}

TEST_CASE("neighbours that share nothing but zeros are no halos") {
  const TensorId input = tensor_id(Kind::kInput, "conv", 0);
  Trace reference = mesh_trace("", 1);
  add_tensor(reference, 0, input, {1, 5}, {1, 0, 0, 4, 5});
  Trace candidate = mesh_trace("tp=2", 2);
  add_tensor(candidate, 0, input, {1, 3}, {1, 0, 0});
  add_tensor(candidate, 1, input, {1, 3}, {0, 4, 5});
  CHECK(aligned_with(reference, candidate).tensors.at(input).deduced.at(0).layout == "contiguous");
}

TEST_CASE("a rule for sequence parallelism fits a program without it, where every shape says so") {
  const std::string text = "norm: {output: {sp_dim: 0}}\nnorm.weight: {param_grad: {sp: partial}}";
  const TensorId norm = tensor_id(Kind::kOutput, "norm", 0), grad = tensor_id(Kind::kParamGrad, "norm.weight", 0);
  const Trace reference = counted_reference({{norm, {4, 2}}, {grad, {1, 2}}});
  Trace candidate = mesh_trace("tp=2,sp=tp", 2);
  add_parts(candidate, norm, {4, 2}, "", "");
  add_parts(candidate, grad, {1, 2}, "", "");
  CHECK(checked(reference, candidate, text).same());
  CHECK(aligned_with(reference, candidate, text).notes.at(0) ==
        "sp=tp: all 1 tensors that rules split over it are whole on every rank; taken as a program without sequence "
        "parallelism");
  // Where one tensor is split, the mesh is believed, and the one that is whole does not fit.
  const TensorId other = tensor_id(Kind::kOutput, "other.norm", 0);
  Trace two = reference;
  add_tensor(two, 0, other, {4, 2}, counted_block(2, {0, 0}, {4, 2}));
  add_parts(candidate, other, {4, 2}, "tp", "");
  const auto found = findings_in(checked(two, candidate, text));
  CHECK(found == std::vector<std::string>{"norm output: shape-mismatch", "norm.weight param_grad: exceeds-tolerance"});
}

TEST_CASE("sequence parallelism that the mesh does not name is on tp, where every shape says so") {
  const std::string text = "norm: {output: {sp_dim: 0}}\nnorm.weight: {param_grad: {sp: partial}}";
  const TensorId norm = tensor_id(Kind::kOutput, "norm", 0), grad = tensor_id(Kind::kParamGrad, "norm.weight", 0);
  Trace reference = counted_reference({{norm, {4, 2}}});
  add_tensor(reference, 0, grad, {2}, {3, 7});
  Trace candidate = mesh_trace("tp=2", 2);
  add_parts(candidate, norm, {4, 2}, "tp", "");
  add_tensor(candidate, 0, grad, {2}, {1, 3});
  add_tensor(candidate, 1, grad, {2}, {2, 4});
  CHECK(checked(reference, candidate, text).same());
  CHECK(aligned_with(reference, candidate, text).notes.at(0) ==
        "sp is no axis of the trace, but all 1 tensors that rules split over it lie in parts on tp; taken as sp=tp");
}

TEST_SUITE_END();
