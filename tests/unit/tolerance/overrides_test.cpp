#include <doctest/doctest.h>

#include "support/mesh_trace.h"
#include "ttrace/error.h"
#include "ttrace/tolerance/tolerance.h"

namespace {

using namespace ttrace;

std::optional<double> allowed(const ToleranceFile& file, Kind kind, const std::string& name) {
  return allowed_for(file, test::tensor_id(kind, name, 0));
}

ToleranceFile with_overrides(std::vector<ToleranceOverride> overrides) {
  ToleranceFile file;
  file.path = "tolerances.yaml";
  file.reference_run = "2f6c";
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

TEST_CASE("a tolerance file of another reference is refused") {
  const ToleranceFile file = with_overrides({});
  Trace reference;
  reference.directory = "runs/reference";
  reference.run_id = "2f6c";
  CHECK_NOTHROW(require_fits(file, reference, {}));
  reference.run_id = "81aa";
  CHECK_THROWS_WITH_AS(require_fits(file, reference, {}),
                       "tolerances.yaml: estimated from the reference run 2f6c, but runs/reference holds run 81aa; "
                       "expected the same run: run `ttrace estimate-tolerance` again with this reference",
                       InputError);
}

TEST_CASE("tolerances of rewritten runs are refused for a candidate that was not rewritten") {
  ToleranceFile file = with_overrides({});
  file.estimator = Estimator::kRewritten;
  Trace reference, candidate;
  reference.run_id = file.reference_run;
  candidate.directory = "runs/candidate";
  CHECK_THROWS_WITH_AS(
      require_fits(file, reference, candidate),
      "tolerances.yaml: says how far a module by itself may differ, and runs/candidate let its modules "
      "compute from each other's values; expected a candidate collected with --inject, or tolerances "
      "of another estimator",
      InputError);
  candidate.provenance.rewritten = RewrittenFrom{"2f6c", "recorded", "", {}};
  CHECK_NOTHROW(require_fits(file, reference, candidate));
}
