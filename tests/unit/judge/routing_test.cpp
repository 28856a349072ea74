#include "judge/routing.h"

#include <doctest/doctest.h>

#include "support/mesh_trace.h"

using namespace ttrace;

TEST_SUITE_BEGIN("judge");

TEST_CASE("a re-routed token may change what its micro-batch computes later, and what all micro-batches add up to") {
  const auto tensor = [](Kind kind, std::int32_t microbatch, std::uint64_t order) {
    LogicalTensor result;
    result.id = test::tensor_id(kind, "layers.1", microbatch);
    result.order = order;
    return result;
  };
  Reroute reroute;
  reroute.logits = test::tensor_id(Kind::kOutput, "layers.0.router", 1);
  reroute.order = 10;
  const std::vector tensors = {tensor(Kind::kOutput, 1, 9),    tensor(Kind::kOutput, 1, 11),
                               tensor(Kind::kOutput, 0, 11),   tensor(Kind::kGradOutput, 1, 2),
                               tensor(Kind::kMainGrad, -1, 1), tensor(Kind::kParam, -1, 20)};
  std::vector<TensorPair> pairs;
  for (const LogicalTensor& one : tensors) pairs.push_back({&one, &one});
  CHECK(find_changed_pairs(pairs, {&reroute, 1}) == std::vector<bool>{false, true, false, true, true, false});
  CHECK(find_changed_pairs(pairs, {}) == std::vector<bool>(6, false));
  reroute.logits.iteration = 1;
  CHECK(find_changed_pairs(pairs, {&reroute, 1}) == std::vector<bool>(6, false));
}

TEST_CASE("a token that a near tie has changed may be sent anywhere later on, and no other") {
  ToleranceFile tolerance;
  const auto reroute = [&](int layer, std::int64_t token, double shift, std::int32_t microbatch = 0) {
    Reroute one;
    one.logits = test::tensor_id(Kind::kOutput, "layers." + std::to_string(layer) + ".router", microbatch);
    one.order = static_cast<std::uint64_t>(10 * layer);
    one.token = token;
    one.shift = shift;
    tolerance.tensors[{Kind::kOutput, one.logits.name}].allowed = 0.02;
    return one;
  };
  const std::vector all = {reroute(3, 7, 0.5), reroute(1, 7, 0.01), reroute(0, 7, 0.5, 1), reroute(2, 8, 0.5)};
  const ReroutesByCause causes = explain_reroutes(all, &tolerance);
  REQUIRE(causes.near_ties.size() == 1);
  CHECK(causes.near_ties[0].logits.name == "layers.1.router");
  REQUIRE(causes.following.size() == 1);
  CHECK(causes.following[0].logits.name == "layers.3.router");
  std::vector<std::string> notes;
  const std::vector<Finding> wrong = judge_reroutes(causes, notes);
  REQUIRE(wrong.size() == 2);
  CHECK(wrong[0].id.name == "layers.2.router");  // another token
  CHECK(wrong[1].id.name == "layers.0.router");  // in another micro-batch
  CHECK(notes.size() == 2);
}
