#include "tolerance/remainder.h"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
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

// Returns what the numbers of one name, one of each iteration, may be off by, relatively.
template <class Number = float>
double step_of_numbers(const std::vector<Number>& numbers, Kind kind, const std::string& name) {
  constexpr Dtype kDtype = std::is_same_v<Number, double> ? Dtype::kFloat64 : Dtype::kFloat32;
  test::Shards shards;
  Alignment reference;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    LogicalTensor tensor = shards.tensor(kDtype, {});
    tensor.id = test::tensor_id(kind, name, 0);
    tensor.id.iteration = static_cast<std::int32_t>(i);
    shards.add(tensor, test::bytes_of(std::vector{numbers[i]}), {.parts = Shape{}});
    reference.tensors.emplace(tensor.id, tensor);
  }
  const OwnRoundings all = roundings_of_crossing(reference);
  return all.empty() ? 0 : all.begin()->second.norm;
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

TEST_CASE("a loss that crosses zero may be off by a step of what it has been") {
  const double step = epsilon_of(Dtype::kFloat32);
  CHECK(step_of_numbers({0.5F, -0.125F, 0}, Kind::kScalar, "loss") == step * 4);
  CHECK(step_of_numbers({0.5F, -0.125F}, Kind::kOutput, "criterion") == step * 4);
  CHECK(step_of_numbers({0.5F, 1e-9F}, Kind::kScalar, "model1.loss") == kMostOfRemainder);
  CHECK(step_of_numbers<double>({0.5, 0.125}, Kind::kScalar, "loss") == epsilon_of(Dtype::kFloat64) * 4);
  CHECK(step_of_numbers({0.5F, 0.5F}, Kind::kScalar, "loss") == 0);
  CHECK(step_of_numbers({0.5F, 0.125F}, Kind::kScalar, "grad_norm") == 0);
  CHECK(step_of_numbers({0.5F, 0.125F}, Kind::kMainGrad, "fc.bias") == 0);
}

TEST_SUITE_END();
