#include "ttrace/judge/routing.h"

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
