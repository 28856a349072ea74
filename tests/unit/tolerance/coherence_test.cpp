#include "tolerance/coherence.h"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>

#include "base/error.h"
#include "support/differences.h"
#include "support/mesh_trace.h"
#include "tolerance/estimate.h"

namespace {

using namespace ttrace;

const std::vector<std::string> kNames = {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"};

TensorId weight_of(int layer, const std::string& name) {
  return test::tensor_id(Kind::kMainGrad, "layers." + std::to_string(layer) + "." + name + ".weight");
}

// The reference's gradients of two layers, and runs in which each is `scale(run, layer, name)` times as large, and one.
struct Gradients {
  std::deque<LogicalTensor> tensors;

  Gradients() {
    for (int layer = 0; layer < 2; ++layer) {
      for (const std::string& name : kNames) {
        LogicalTensor& one = tensors.emplace_back();
        one.id = weight_of(layer, name);
        one.shape = {32, 32};
      }
    }
  }

  template <typename Scale>
  RunDifferences run(const Scale& scale) const {
    RunDifferences run;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Difference difference;
      difference.elements = difference.differing = 1024;
      difference.reference_square = difference.candidate_square = 1024;
      difference.along = 1024 * scale(i / kNames.size(), i % kNames.size());
      difference.difference_square = 1024 * 0.01 * 0.01;
      difference.max_abs = 0.03;
      run.pairs.push_back({&tensors[i], &tensors[i]});
      run.differences.push_back(difference);
    }
    return run;
  }
};

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("a contrast is a tensor's scale beside the median of the others in its layer") {
  std::vector<TensorScale> scales;
  for (int layer = 0; layer < 2; ++layer) {
    for (std::size_t i = 0; i < 4; ++i) {
      scales.push_back({weight_of(layer, kNames[i]), (layer == 0 ? 1.0 : 10.0) * static_cast<double>(i)});
    }
  }
  const auto added = scales.size();
  scales.push_back({weight_of(2, "mlp.fc1"), 7});                                         // alone in its layer
  scales.push_back({test::tensor_id(Kind::kMainGrad, "embedding.weight"), 7});            // of no layer
  scales.push_back({test::tensor_id(Kind::kParamDelta, "layers.0.attn.qkv.weight"), 7});  // an optimizer's step
  const Contrasts contrasts = contrasts_of(scales);
  REQUIRE(contrasts.size() == 4);
  const auto& first = contrasts.at({Kind::kMainGrad, "layers.#.attn.qkv.weight"});
  REQUIRE(first.size() == 2);
  CHECK(first[0].tensor == 0);
  CHECK(first[0].value == -2);
  CHECK(first[1].value == -20);
  CHECK(mean_of(first) == -11);
  CHECK(contrasts.at({Kind::kMainGrad, "layers.#.mlp.fc1.weight"})[0].value == 1);
  CHECK(added == 8);
}

TEST_CASE("what a gradient's layers may have in common comes from the means of the perturbed runs") {
  const Gradients model;
  std::vector<RunDifferences> runs;
  for (const double sign : {1.0, -1.0, 1.0}) {
    runs.push_back(model.run([&](std::size_t layer, std::size_t name) {
      const double in_common = sign * 0.1;  // by all tensors: no contrast has it
      return in_common + (name == 3 ? (layer == 0 ? 3e-4 : sign * 5e-4) : 0);
    }));
  }
  const ToleranceFile file = estimate(runs, nullptr, {});
  REQUIRE(file.coherence.size() == 4);
  const CoherenceTolerance& tolerance = file.coherence.at({Kind::kMainGrad, "layers.#.mlp.fc2.weight"});
  REQUIRE(tolerance.samples.size() == 3);
  CHECK(tolerance.samples[0] == doctest::Approx(4e-4));
  CHECK(tolerance.samples[1] == doctest::Approx(-1e-4));
  CHECK(tolerance.members == 2);
  CHECK(tolerance.spread == doctest::Approx(std::sqrt((9e-8 + 25e-8) / 2)));
  // Two different groups, of which one does not move: its spread is the floor of the scale.
  CHECK(tolerance.inflation == 1);
  CHECK(tolerance.responses == 3);
  CHECK(tolerance.floor == 0);
  CHECK(tolerance.allowed == doctest::Approx(604.165 * tolerance.spread / std::sqrt(2)));
  CHECK(file.coherence.at({Kind::kMainGrad, "layers.#.mlp.fc1.weight"}).spread ==
        file.tensors.at({Kind::kMainGrad, "layers.0.mlp.fc1.weight"}).statistics.at(Statistic::kScale).floor);

  const OwnRoundings own = {{{Kind::kMainGrad, "layers.1.mlp.fc2.weight"}, {0.01, 0.3, 0.01}}};
  CHECK(estimate(runs, nullptr, {}, own).coherence.at({Kind::kMainGrad, "layers.#.mlp.fc2.weight"}).allowed ==
        doctest::Approx(0.9));
}

TEST_CASE("contrasts that all layers share make their mean as uncertain as one of them") {
  const Gradients model;
  std::vector<RunDifferences> runs;
  for (const double sign : {1.0, -1.0, 1.0}) {
    runs.push_back(model.run([&](std::size_t, std::size_t name) { return name == 3 ? sign * 1e-3 : 0; }));
  }
  const CoherenceTolerance tolerance =
      estimate(runs, nullptr, {}).coherence.at({Kind::kMainGrad, "layers.#.mlp.fc2.weight"});
  CHECK(tolerance.inflation == doctest::Approx(1));  // 2 of the group that moves, 0 of the three that do not, as one
  CHECK(tolerance.allowed == doctest::Approx(604.165 * 1e-3 / std::sqrt(2)));
}

TEST_CASE("a candidate of a larger scatter may have a larger mean") {
  const CoherenceTolerance tolerance = {{0, 0, 0}, 0.001, 4, 1, 30, 0, 0};
  const std::vector<Contrast> calm = {{0, 0.001}, {1, 0.001}, {2, 0.001}, {3, 0.001}};
  const std::vector<Contrast> wild = {{0, 0.001}, {1, -0.001}, {2, 0.009}, {3, -0.009}};
  CHECK(allowed_for(tolerance, calm) == allowed_for(tolerance));
  CHECK(allowed_for(tolerance, wild) == doctest::Approx(allowed_for(tolerance) * std::sqrt(164.0 / 3)));
}

TEST_CASE("a file that does not say what a group may have in common is refused") {
  const Gradients model;
  const RunDifferences run = model.run([](std::size_t, std::size_t) { return 1e-4; });
  ToleranceFile file = estimate(std::vector{run, run, run}, nullptr, {});
  file.path = "t.yaml";
  Alignment reference;
  for (const LogicalTensor& tensor : model.tensors) reference.tensors.emplace(tensor.id, tensor);
  CHECK_NOTHROW(require_coherence(file, reference));
  file.coherence.erase({Kind::kMainGrad, "layers.#.mlp.fc1.weight"});
  CHECK_THROWS_WITH_AS(
      require_coherence(file, reference),
      "t.yaml: does not say what the coherence of layers.#.mlp.fc1.weight main_grad may be, 2 tensors; "
      "expected what `ttrace estimate-tolerance` writes: run it again",
      InputError);
}
