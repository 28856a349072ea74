#include <doctest/doctest.h>

#include <deque>

#include "support/mesh_trace.h"
#include "tolerance/estimate.h"

namespace {

using namespace ttrace;

// Builds a perturbed run of a model from its tensors, some of which moved.
class Run {
 public:
  Run& add(Kind kind, const std::string& name, bool moved, double norm = 2) {
    LogicalTensor& tensor = tensors_.emplace_back();
    tensor.id = test::tensor_id(kind, name, 0);
    tensor.order = tensors_.size();
    tensor.shape = {16};
    Difference difference;
    difference.elements = 4;
    difference.differing = moved ? 1 : 0;
    difference.reference_square = difference.candidate_square = norm * norm;
    difference.difference_square = moved ? 0.25 : 0;
    run_.pairs.push_back({&tensor, &tensor});
    run_.differences.push_back(difference);
    return *this;
  }

  ToleranceFile tolerances(Estimator estimator = Estimator::kInput) const {
    return estimate(std::vector<RunDifferences>(3, run_), nullptr, {.estimator = estimator});
  }
  std::vector<std::string> notes(Estimator estimator = Estimator::kInput) const { return tolerances(estimator).notes; }

 private:
  std::deque<LogicalTensor> tensors_;
  RunDifferences run_;
};

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("a branch that the perturbation does not feed is named once, by its topmost module") {
  Run run;
  run.add(Kind::kOutput, "text", true);
  run.add(Kind::kOutput, "vision", false).add(Kind::kOutput, "vision.layers.0:1#2", false);
  run.add(Kind::kOutput, "vision.layers.0.mlp", false).add(Kind::kOutput, "vision-head", false);
  CHECK(run.notes() ==
        std::vector<std::string>{
            "no perturbed run moved vision: it is not fed by what was perturbed, and 3 of its outputs may differ by "
            "what `-t default` allows; --estimator modules perturbs it too",
            "no perturbed run moved vision-head: it is not fed by what was perturbed, and 1 of its outputs may differ "
            "by what `-t default` allows; --estimator modules perturbs it too"});
  CHECK(run.notes(Estimator::kModules)[1] ==
        "no perturbed run moved vision-head: it is not fed by what was perturbed, and 1 of its outputs may differ by "
        "what `-t default` allows");
}

TEST_CASE("a module inside which something moved is no such branch, but what did not move in it is") {
  Run run;
  run.add(Kind::kOutput, "embedding", false).add(Kind::kOutput, "embedding.words", true);
  run.add(Kind::kOutput, "embedding.positions", false);
  REQUIRE(run.notes().size() == 1);
  CHECK(run.notes()[0].starts_with("no perturbed run moved embedding.positions: "));
}

TEST_CASE("a model that nothing moved is named as one, and one in which something moved is not named") {
  Run run;
  run.add(Kind::kOutput, "(model)", false).add(Kind::kOutput, "mlp", false).add(Kind::kOutput, "mlp#1", false);
  run.add(Kind::kScalar, "loss", true);
  REQUIRE(run.notes().size() == 1);
  CHECK(run.notes()[0].starts_with("no perturbed run moved (model): it is not fed by what was perturbed, and 3 of"));
  run.add(Kind::kOutput, "norm", true);
  REQUIRE(run.notes().size() == 1);
  CHECK(run.notes()[0].starts_with("no perturbed run moved mlp: "));
}

TEST_CASE("zeros, initial parameters and gradients of activations need not move; a parameter's gradient should") {
  Run run;
  run.add(Kind::kOutput, "mlp", true).add(Kind::kOutput, "zeros", false, 0).add(Kind::kParam, "w", false);
  run.add(Kind::kGradOutput, "mean", false).add(Kind::kInput, "image", false).add(Kind::kParamAfter, "w", false);
  CHECK(run.notes().empty());
  run.add(Kind::kMainGrad, "head.bias", false).add(Kind::kParamGrad, "head.bias", false);
  CHECK(run.notes() == std::vector<std::string>{"no perturbed run moved the gradient of head.bias: it may differ by no "
                                                "more than 2.4 rounding steps of float32"});
  run.add(Kind::kMainGrad, "head.weight", false);
  CHECK(run.notes()[0].starts_with("no perturbed run moved the gradient of head.bias (and 1 more): "));
}

TEST_CASE("what no run moved may differ as the closed form says, however deep it is") {
  Run run;
  for (int layer = 0; layer < 100; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    run.add(Kind::kOutput, name, true).add(Kind::kOutput, name + "#1", false);
    run.add(Kind::kGradOutput, name, true).add(Kind::kGradOutput, name + "#1", layer > 0);
    run.add(Kind::kMainGrad, name + ".weight", true);
    run.add(Kind::kOutput, "side." + name, false).add(Kind::kMainGrad, "side." + name + ".weight", layer > 0);
  }
  const ToleranceFile file = run.tolerances();
  const auto floor = [&](Kind kind, const std::string& name) { return file.tensors.at({kind, name}).floor; };
  CHECK(floor(Kind::kOutput, "layers.0") == floor(Kind::kOutput, "layers.99"));
  CHECK(floor(Kind::kOutput, "layers.99#1") > 5 * floor(Kind::kOutput, "layers.99"));
  CHECK(floor(Kind::kOutput, "layers.99#1") > 5 * floor(Kind::kOutput, "layers.0#1"));
  CHECK(floor(Kind::kGradOutput, "layers.0#1") > 5 * floor(Kind::kGradOutput, "layers.0"));
  CHECK(floor(Kind::kGradOutput, "layers.1#1") == floor(Kind::kGradOutput, "layers.1"));  // measured
  CHECK(floor(Kind::kMainGrad, "side.layers.0.weight") > 5 * floor(Kind::kMainGrad, "layers.0.weight"));
  CHECK(floor(Kind::kMainGrad, "side.layers.1.weight") == floor(Kind::kMainGrad, "layers.1.weight"));
}

TEST_CASE("a tensor that one of the runs moved is reached") {
  Run still, moved;
  still.add(Kind::kOutput, "mlp", true).add(Kind::kOutput, "side", false);
  CHECK(still.notes().size() == 1);
  moved.add(Kind::kOutput, "mlp", true).add(Kind::kOutput, "side", true);
  CHECK(moved.notes().empty());
}
