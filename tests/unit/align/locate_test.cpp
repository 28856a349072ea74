#include "align/locate.h"

#include <doctest/doctest.h>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "base/layout.h"
#include "files/annotation_file.h"
#include "support/mesh_trace.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

const Mesh kMesh = parse_mesh("tp=2,dp=2,pp=2,sp=tp", 8, "test");

Location located(const std::string& text, const Coordinates& coordinates, const TensorId& id, const Shape& shape) {
  return locate(parse_annotations(text, "gpt.yaml"), kMesh, coordinates, id, shape);
}

std::string error_of(const std::string& text, const TensorId& id, const Shape& shape) {
  try {
    located(text, {{"tp", 1}, {"dp", 0}, {"pp", 0}}, id, shape);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("align");

TEST_CASE("a rank finds its shard and its micro-batch by itself") {
  const Location location = located("embedding: {output: {sp_dim: 0}}", {{"tp", 1}, {"dp", 1}, {"pp", 0}},
                                    tensor_id(Kind::kOutput, "embedding", 3), {4, 2, 8});
  CHECK(location.id == tensor_id(Kind::kOutput, "embedding", 7));
  CHECK(location.shape == Shape{8, 2, 8});
  CHECK(location.slices == std::vector<Slice>{{{{0, 0, 0}, {4, 2, 8}}, {{4, 0, 0}, {4, 2, 8}}}});
}

TEST_CASE("a rank of a zigzag finds both of its chunks") {
  const Location location = located("x: {output: {tp: {dim: 0, layout: zigzag}}}", {{"tp", 1}, {"dp", 0}, {"pp", 0}},
                                    tensor_id(Kind::kOutput, "x"), {4, 3});
  CHECK(location.shape == Shape{8, 3});
  CHECK(location.slices ==
        std::vector<Slice>{{{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}}, {{{2, 0}, {2, 3}}, {{4, 0}, {2, 3}}}});
}

TEST_CASE("a rank finds the place that the alignment of all ranks finds") {
  const Annotations annotations = parse_annotations("x: {output: {pp_dim: 0, tp_dim: 0, dp_dim: 1}}", "gpt.yaml");
  Trace trace = mesh_trace("tp=2,dp=2,pp=2,sp=tp", 8);
  const TensorId id = tensor_id(Kind::kOutput, "x");
  for (std::size_t rank = 0; rank < 8; ++rank) add_tensor(trace, rank, id, {3, 5});
  const Alignment alignment = align(trace, annotations, {});
  REQUIRE(alignment.tensors.size() == 1);
  for (const Piece& piece : alignment.tensors.at(id).pieces()) {
    const Coordinates& coordinates = trace.ranks[static_cast<std::size_t>(piece.rank)].coordinates;
    const Location location = locate(annotations, kMesh, coordinates, id, {3, 5});
    REQUIRE(location.slices.size() == 1);
    CHECK(location.slices[0].whole == piece.logical);
    CHECK(location.shape == alignment.tensors.at(id).shape);
  }
}

TEST_CASE("a rank finds the reference's name of a tied parameter, and the factoring it lies on") {
  const Annotations annotations = parse_annotations(
      "embedding.weight: {ep_dim: 0}\nparallelism:\n  tied: {head.weight: embedding.weight}\n"
      "  pipeline: {layers: layers}\n",
      "gpt.yaml");
  const Mesh mesh = parse_mesh("dp=4/ep=2,edp=2", 4, "test");
  TensorId id = tensor_id(Kind::kParamGrad, "head.weight", 1);
  id.chunk = 1;
  const Location location = locate(annotations, mesh, coordinates_of(mesh, 3), id, {2});
  CHECK(location.id == tensor_id(Kind::kParamGrad, "embedding.weight", 1));
  CHECK(location.shape == Shape{4});
  CHECK(location.slices == std::vector<Slice>{{{{0}, {2}}, {{2}, {2}}}});
}

TEST_CASE("what a rank cannot find out alone is refused") {
  CHECK(error_of("x: {output: {tp: {dim: 0, layout: zigzag}}}", tensor_id(Kind::kOutput, "x"), {5}) ==
        "x output, iteration 0: parts of 5, 5 elements do not zigzag; expected equal and even parts, 4 chunks in all");
  CHECK(error_of("parallelism: {microbatches: {order: blocked}}", tensor_id(Kind::kOutput, "x", 0), {4}) ==
        "x output, iteration 0, micro-batch 0: with blocked micro-batches one rank cannot tell which of 2 this is; "
        "expected interleaved ones, or one rank on 'dp'");
  CHECK(error_of("x: {output: {tp_dim: 1}}", tensor_id(Kind::kOutput, "x"), {4}) ==
        "gpt.yaml:1: 'x': output: dim 1 is out of range for x of shape [4]; expected -1 to 0");
}

TEST_SUITE_END();
