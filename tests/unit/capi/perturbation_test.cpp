#include "capi/perturbation.h"

#include <doctest/doctest.h>

#include <vector>

#include "files/annotation_file.h"
#include "numeric/generator.h"

using namespace ttrace;

namespace {

RunDescription run_with(const std::string& axes, std::int32_t world_size, std::int32_t rank) {
  RunDescription run;
  run.run_id = std::string("run-1");
  run.world_size = world_size;
  run.rank = rank;
  run.mesh = parse_mesh(axes, world_size, "test");
  run.coordinates = coordinates_of(run.mesh.axes, rank);
  return run;
}

std::vector<float> perturbation(const Annotations& annotations, const RunDescription& run, std::int32_t microbatch,
                                const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  const TensorId id{2, microbatch, 0, Pass::kForward, Kind::kOutput, "embedding"};
  fill_perturbation(annotations, run, 9, id, shape, values.data());
  return values;
}

}  // namespace

TEST_SUITE("capi") {
  TEST_CASE("Ranks perturb their shards as one rank perturbs the whole tensor") {
    const Annotations annotations = parse_annotations(
        "embedding: {output: {tp_dim: 1}}\n"
        "parallelism: {microbatches: {axis: dp, order: interleaved}}\n",
        "test.yaml");
    const Annotations none;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      const auto shard = perturbation(annotations, run_with("tp=2,dp=2", 4, rank), 3, {5, 3});
      // The local micro-batch 3 of data-parallel rank dp is the global one 3 * 2 + dp.
      const auto whole = perturbation(none, run_with("", 1, 0), 3 * 2 + rank / 2, {5, 6});
      for (std::size_t i = 0; i < 5; ++i) {
        for (std::size_t j = 0; j < 3; ++j) {
          CHECK(shard[i * 3 + j] == whole[i * 6 + j + 3 * static_cast<std::size_t>(rank % 2)]);
        }
      }
    }
  }

  TEST_CASE("The generator's key is iteration, micro-batch, kind and name") {
    const auto values = perturbation({}, run_with("", 1, 0), 1, {4});
    std::vector<float> generated(4);
    fill_uniform(9, "2/1/output/embedding", Shape{4}, Shape{0}, Shape{4}, generated.data());
    CHECK(values == generated);
    const auto without_microbatch = perturbation({}, run_with("", 1, 0), kNoMicrobatch, {4});
    fill_uniform(9, "2/-/output/embedding", Shape{4}, Shape{0}, Shape{4}, generated.data());
    CHECK(without_microbatch == generated);
  }
}
