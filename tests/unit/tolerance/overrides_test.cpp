#include <doctest/doctest.h>

#include "base/error.h"
#include "support/mesh_trace.h"
#include "tolerance/tolerance.h"

namespace {

using namespace ttrace;

std::optional<double> allowed(const ToleranceFile& file, Kind kind, const std::string& name) {
  return allowed_for(file, test::tensor_id(kind, name, 0));
}

ToleranceFile with_overrides(std::vector<ToleranceOverride> overrides) {
  ToleranceFile file;
  file.path = "tolerances.yaml";
  file.reference_run = "2f6c";
  file.reference_digest = "9f86";
  file.compute_dtype = "bfloat16";
  file.margin = 3;
  file.overrides = std::move(overrides);
  file.tensors[{Kind::kOutput, "decoder.layers.0.mlp"}].allowed = 0.1;
  return file;
}

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("without an override a tensor's own entry holds, for its kind only") {
  const ToleranceFile file = with_overrides({});
  CHECK(allowed(file, Kind::kOutput, "decoder.layers.0.mlp") == 0.1);
  CHECK_FALSE(allowed(file, Kind::kInput, "decoder.layers.0.mlp").has_value());
  CHECK_FALSE(allowed(file, Kind::kOutput, "decoder.layers.1.mlp").has_value());
}

TEST_CASE("of the overrides that match the last wins, also over a larger entry") {
  const ToleranceFile file = with_overrides({{"mlp", std::nullopt, 0.5, "first", 1},
                                             {"mlp", std::nullopt, 0.02, "second", 2},
                                             {"mlp", Kind::kInput, 0.03, "inputs", 3}});
  CHECK(allowed(file, Kind::kOutput, "decoder.layers.0.mlp") == 0.02);
  CHECK(allowed(file, Kind::kInput, "decoder.layers.0.mlp") == 0.03);
  CHECK(allowed(file, Kind::kOutput, "decoder.layers.9.mlp") == 0.02);
  CHECK_FALSE(allowed(file, Kind::kOutput, "decoder.layers.0.attention").has_value());
}

TEST_CASE("an override that matches nothing is mentioned with its line") {
  const ToleranceFile file = with_overrides({{"mlp", Kind::kOutput, 0.5, "used", 8},
                                             {"mlp", Kind::kMainGrad, 0.5, "wrong kind", 9},
                                             {"router", std::nullopt, 0.5, "wrong name", 12}});
  CHECK(unused_overrides(file, {{Kind::kOutput, "decoder.layers.0.mlp"}}) ==
        std::vector<std::string>{"tolerances.yaml:9: the override 'mlp' of kind main_grad matches no tensor",
                                 "tolerances.yaml:12: the override 'router' matches no tensor"});
}

namespace {

Trace reference_of(const ToleranceFile& file) {
  Trace reference;
  reference.directory = "runs/reference";
  reference.run_id = file.reference_run;
  reference.compute_dtype = file.compute_dtype;
  return reference;
}

}  // namespace

TEST_CASE("a tolerance file of another reference, of other data or of another dtype is refused") {
  const ToleranceFile file = with_overrides({});
  const Trace same = reference_of(file);
  CHECK_NOTHROW(require_fits(file, same, "9f86", {}));
  Trace other = same;
  other.run_id = "81aa";
  CHECK_THROWS_WITH_AS(require_fits(file, other, "9f86", {}),
                       "tolerances.yaml: estimated from the reference run 2f6c, but runs/reference holds run 81aa; "
                       "expected the same run: run `ttrace estimate-tolerance` again with this reference",
                       InputError);
  other = same;
  other.compute_dtype = "float16";
  CHECK_THROWS_WITH_AS(require_fits(file, other, "9f86", {}),
                       "tolerances.yaml: estimated in bfloat16, but runs/reference computes in 'float16'; expected the "
                       "same dtype: run `ttrace estimate-tolerance` again with this reference",
                       InputError);
  CHECK_THROWS_WITH_AS(
      require_fits(file, same, "1234", {}),
      "tolerances.yaml: estimated from data with digest 9f86, but runs/reference now holds data with digest 1234; "
      "expected what the reference held then: run `ttrace estimate-tolerance` again with this reference",
      InputError);
}

TEST_CASE("an override that names no tensor, or allows any value, is refused unless it is accepted") {
  const char* const rest = "; expected a pattern with a name in it and less than 1, or --accept-overrides";
  const auto refused = [](const std::string& pattern, double allowed) {
    const ToleranceFile file = with_overrides({{pattern, std::nullopt, allowed, "a test", 8}});
    try {
      require_modest_overrides(file);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* pattern : {"**", "*", "*.**", "?*", "[a-z]*", "**.[!x]*"}) {
    CHECK(refused(pattern, 0.5) ==
          std::string("tolerances.yaml:8: the override '") + pattern + "' (allowed 0.5) matches every tensor" + rest);
  }
  CHECK(refused("mlp", 1) == std::string("tolerances.yaml:8: the override 'mlp' (allowed 1) allows any value") + rest);
  CHECK(refused("mlp", 0.99).empty());
  CHECK(refused("layers.*.mlp", 0.5).empty());
}

TEST_CASE("a floor of more than a rounding step is refused where no optimizer steps") {
  ToleranceFile file = with_overrides({});
  file.epsilon = 1.0 / 128;
  const ToleranceKey output = {Kind::kOutput, "decoder.layers.0.mlp"}, step = {Kind::kParamDelta, "w"};
  file.tensors[output].floor = 1.0 / 128;
  file.tensors[step].floor = 0.5;
  std::map<ToleranceKey, StoredTensor> stored = {{output, {Dtype::kFloat32, 64}}, {step, {Dtype::kFloat32, 64}}};
  CHECK_NOTHROW(require_plausible_floors(file, stored));
  file.tensors[output].floor = 0.3;
  CHECK_THROWS_WITH_AS(require_plausible_floors(file, stored),
                       "tolerances.yaml: the floor of decoder.layers.0.mlp output is 0.3; expected at "
                       "most 0.0078125, a rounding step or what the samples leave to luck: run `ttrace "
                       "estimate-tolerance` again, or write an override",
                       InputError);
  // One number, of which three runs say little.
  file.margin = 3;
  file.tensors[output].samples = {0.01, 0.02, 0.04};
  stored[output].elements = 1;
  CHECK_NOTHROW(require_plausible_floors(file, stored));
  file.tensors[output].floor = 0.82;  // 60.4 * 0.04 / 3 are 0.805
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
  file.tensors[output].samples = {0.01, 0.02, 0.34};  // three times the last are more than all of it: rounding alone
  CHECK_NOTHROW(require_plausible_floors(file, stored));
}

TEST_CASE("a gradient's floor may be what its sum over tokens rounds") {
  ToleranceFile file = with_overrides({});
  file.epsilon = 1.0 / 128;
  const ToleranceKey gradient = {Kind::kMainGrad, "norm.bias"}, output = {Kind::kOutput, "norm"};
  const StoredTensors stored = {{gradient, {Dtype::kFloat32, 64, 0, 64}}, {output, {Dtype::kFloat32, 16384, 256, 256}}};
  file.tensors[gradient].floor = 0.03;
  CHECK_NOTHROW(require_plausible_floors(file, stored));
  file.tensors[gradient].floor = 0.126;  // sqrt(256) / 128 are 0.125
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
  file.tensors[gradient].floor = 0;
  file.tensors[output].floor = 0.03;
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
}

TEST_CASE("a gradient of few elements whose terms cancel may be rounding alone, though no run moves it") {
  ToleranceFile file = with_overrides({});
  file.margin = 3;
  const ToleranceKey few = {Kind::kParamGrad, "score.bias"}, many = {Kind::kParamGrad, "score.weight"};
  const StoredTensors stored = {{few, {Dtype::kFloat32, 1}}, {many, {Dtype::kFloat32, 64}}};
  file.tensors[few].floor = 2.67;
  CHECK_NOTHROW(require_plausible_floors(file, stored));
  file.tensors[few].floor = 0.3;  // three times that would let it pass
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
  file.tensors[few].floor = 0;
  file.tensors[many].floor = 2.67;
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
}

TEST_CASE("the floor of the gradients' norm may be what adding up their squares rounds") {
  ToleranceFile file = with_overrides({});
  file.epsilon = 1.0 / (1 << 23);
  const ToleranceKey norm = {Kind::kScalar, "grad_norm"}, loss = {Kind::kScalar, "loss"};
  const StoredTensors stored = {{{Kind::kMainGrad, "w"}, {Dtype::kFloat32, 1 << 20, 1024, 1024}},
                                {norm, {Dtype::kFloat32, 1, 1, 1}},
                                {loss, {Dtype::kFloat32, 1, 1, 1}}};
  file.tensors[norm].floor = 6.1e-5;  // 1025 / 2^24
  CHECK_NOTHROW(require_plausible_floors(file, stored));
  file.tensors[norm].floor = 6.2e-5;
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
  file.tensors[norm].floor = 0;
  file.tensors[loss].floor = 1e-4;  // in another iteration it may be a thousand times as large
  CHECK_NOTHROW(require_plausible_floors(file, stored));
  file.tensors[loss].floor = 1e-3;
  CHECK_THROWS_AS(require_plausible_floors(file, stored), InputError);
}

TEST_CASE("a file that leaves out a statistic of a large tensor is refused") {
  ToleranceFile file = with_overrides({});
  const ToleranceKey key = {Kind::kOutput, "decoder.layers.0.mlp"};
  const auto refused = [&](const StoredTensor& tensor) {
    try {
      require_statistics(file, {{key, tensor}});
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const StoredTensor large = {Dtype::kBFloat16, 1024, 32, 32}, few_rows = {Dtype::kBFloat16, 1024, 4, 256};
  CHECK(refused({Dtype::kBFloat16, 128, 16, 16}).empty());
  CHECK(refused(large).starts_with(
      "tolerances.yaml: does not say what scale of decoder.layers.0.mlp output may be, a tensor of 1024 elements"));
  file.tensors[key].statistics = {{Statistic::kScale, {}}, {Statistic::kElement, {}}};
  CHECK(refused(large).starts_with("tolerances.yaml: does not say what row of"));
  CHECK(refused(few_rows).empty());
  CHECK(refused({Dtype::kBFloat16, 1024, 32, 32, true}).empty());
  file.tensors[key].statistics.try_emplace(Statistic::kRow);
  CHECK(refused(large).empty());
}

TEST_CASE("what an override allows is told from what was estimated") {
  const ToleranceFile file = with_overrides({{"mlp", std::nullopt, 0.5, "first", 1}});
  const Allowance allowance = allowance_for(file, test::tensor_id(Kind::kOutput, "decoder.layers.0.mlp", 0));
  CHECK(allowance.allowed == 0.5);
  CHECK(allowance.estimated == 0.1);
  CHECK(allowance.by_override == 0);
}

TEST_CASE("tolerances of rewritten runs are refused for a candidate that was not rewritten") {
  ToleranceFile file = with_overrides({});
  file.estimator = Estimator::kRewritten;
  const Trace reference = reference_of(file);
  Trace candidate;
  candidate.directory = "runs/candidate";
  CHECK_THROWS_WITH_AS(
      require_fits(file, reference, "9f86", candidate),
      "tolerances.yaml: says how far a module by itself may differ, and runs/candidate let its modules "
      "compute from each other's values; expected a candidate collected with --inject, or tolerances "
      "of another estimator",
      InputError);
  candidate.provenance.rewritten = RewrittenFrom{"2f6c", "recorded", "", {}};
  CHECK_NOTHROW(require_fits(file, reference, "9f86", candidate));
}
