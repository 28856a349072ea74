#include "tolerance/remainder.h"

#include <doctest/doctest.h>

#include <vector>

#include "support/mesh_trace.h"
#include "support/shards.h"

namespace {

using namespace ttrace;

// Returns the step of a gradient, relatively; 0 where its bits tell none.
double step_of_gradient(const std::vector<float>& values, Kind kind = Kind::kMainGrad) {
  test::Shards shards;
  LogicalTensor tensor = shards.tensor(Dtype::kFloat32, {static_cast<std::int64_t>(values.size())});
  tensor.id = test::tensor_id(kind, "(optimizer).0");
  shards.add(tensor, test::bytes_of(values), {.parts = Shape(1, 1)});
  const auto rounding = rounding_of_remainder(tensor);
  return rounding ? rounding->norm : 0;
}

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("what is left of larger numbers may be off by a step of theirs") {
  const float mean = 2.0F + 56205 * 0x1p-22F, left = mean - 2.0F;
  CHECK(step_of_gradient({left}) == doctest::Approx(1.0 / 56205));
  CHECK(step_of_gradient({left}, Kind::kParamGrad) == doctest::Approx(1.0 / 56205));
}

TEST_CASE("numbers of all their places, of few, and of updates tell nothing") {
  CHECK(step_of_gradient({0.1F}) == 0);
  CHECK(step_of_gradient({0.5F}) == 0);
  CHECK(step_of_gradient({0.0F}) == 0);
  CHECK(step_of_gradient({1234.0F / 4096}) == 0);
  CHECK(step_of_gradient({56205 * 0x1p-22F}, Kind::kParamDelta) == 0);
  CHECK(step_of_gradient(std::vector<float>(9, 56205 * 0x1p-22F)) == 0);
}

TEST_SUITE_END();
