#include "base/not_seen.h"

#include <doctest/doctest.h>

using namespace ttrace;

namespace {

NotSeen statement_about(Kind kind, std::int32_t iteration) { return {"compiled", {kind}, {iteration}, 0, {}, {}}; }

TensorId output(const std::string& name, std::int32_t iteration = 0) {
  return {iteration, 3, 0, Pass::kForward, Kind::kOutput, name};
}

}  // namespace

TEST_SUITE_BEGIN("base");

TEST_CASE("a module that was not seen stands for all of its calls, and for no module inside") {
  NotSeenTensors tensors;
  tensors.add_module(statement_about(Kind::kOutput, 0), "layers.0.mlp");
  for (const char* name : {"layers.0.mlp", "layers.0.mlp#1", "layers.0.mlp:0", "layers.0.mlp:hidden#2"}) {
    REQUIRE(tensors.reason_of(output(name)) != nullptr);
    CHECK(tensors.reason_of(output(name))->text == "compiled");
  }
  for (const char* name : {"layers.0.mlp.fc1", "layers.0", "layers.1.mlp"}) {
    CHECK(tensors.reason_of(output(name)) == nullptr);
  }
}

TEST_CASE("a statement is about its kinds and its iterations only") {
  NotSeenTensors tensors;
  tensors.add_module(statement_about(Kind::kOutput, 1), "mlp");
  CHECK(tensors.reason_of(output("mlp", 1)) != nullptr);
  CHECK(tensors.reason_of(output("mlp", 0)) == nullptr);
  CHECK(tensors.reason_of({1, 0, 0, Pass::kForward, Kind::kInput, "mlp"}) == nullptr);
}

TEST_CASE("a tensor that was not seen stands for itself, or for what it holds") {
  NotSeenTensors tensors;
  tensors.add_tensor(statement_about(Kind::kOutput, 0), "attention:cache#1");
  for (const char* name : {"attention:cache#1", "attention:cache.0#1", "attention:cache.keys.1#1"}) {
    CHECK(tensors.reason_of(output(name)) != nullptr);
  }
  for (const char* name : {"attention:cache", "attention:cached#1", "attention:hidden#1", "attention#1"}) {
    CHECK(tensors.reason_of(output(name)) == nullptr);
  }
  tensors.add_tensor(statement_about(Kind::kOutput, 0), "mlp");
  CHECK(tensors.reason_of(output("mlp:0")) != nullptr);
  CHECK(tensors.reason_of(output("mlp#1")) == nullptr);
}

TEST_CASE("what holds less by design says so of all, and of no tensor that is there in part") {
  NotSeenTensors tensors;
  CHECK(!tensors.covers_everything());
  NotSeen statement;
  statement.reason = "imported";
  statement.everything = true;
  tensors.add_everything(statement);
  CHECK(tensors.covers_everything());
  CHECK(tensors.reasons_by_design() == std::set<std::string>{"imported"});
  CHECK(tensors.reason_of(output("mlp")) == nullptr);
}

TEST_CASE("what is left out by name is by design, and nothing else is") {
  NotSeenTensors tensors;
  NotSeen statement = statement_about(Kind::kOutput, 0);
  tensors.add_module(statement, "embedding");
  CHECK(tensors.reasons_by_design().empty());
  statement.reason = "collected with --depth 2";
  statement.by_design = true;
  tensors.add_module(statement, "mlp");
  CHECK(tensors.reasons_by_design() == std::set<std::string>{"collected with --depth 2"});
  CHECK(!tensors.covers_everything());
  REQUIRE(tensors.reason_of(output("mlp")) != nullptr);
  CHECK(tensors.reason_of(output("mlp"))->by_design);
  CHECK(!tensors.reason_of(output("embedding"))->by_design);
  CHECK(tensors.reason_of(output("attention")) == nullptr);
}
