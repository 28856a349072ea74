#include <doctest/doctest.h>

#include <cmath>

#include "judge/judge.h"
#include "support/differences.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;

// 32 rows of 32 elements, 1 or -1; each statistic may be 10 times what a test's tolerance says of correct runs.
constexpr std::size_t kSide = 32;

std::vector<float> ones() {
  std::vector<float> values(kSide * kSide);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? -1 : 1;
  return values;
}

ToleranceFile allowing(double scale, double row, double element) {
  ToleranceFile file;
  Tolerance& tolerance = file.tensors[{Kind::kOutput, "mlp"}];
  tolerance.estimate = 0.03;
  tolerance.allowed = 0.1;
  tolerance.statistics[Statistic::kScale].allowed = scale;
  tolerance.statistics[Statistic::kRow].allowed = row;
  tolerance.statistics[Statistic::kElement].allowed = element;
  return file;
}

Finding judged(const std::vector<float>& candidate, const ToleranceFile& tolerance) {
  test::Shards shards;
  LogicalTensor reference = shards.tensor(Dtype::kFloat32, {kSide, kSide});
  reference.id = test::tensor_id(Kind::kOutput, "mlp", 0);
  LogicalTensor other = reference;
  shards.add(reference, test::bytes_of(ones()), {.parts = {1, 1}});
  shards.add(other, test::bytes_of(candidate), {.parts = {1, 1}});
  return judge({&reference, &other}, test::difference(reference, other), &tolerance);
}

}  // namespace

TEST_SUITE_BEGIN("judge");

TEST_CASE("a factor that the norm lets pass is said in words, and its correct twin passes") {
  std::vector<float> scaled = ones();
  for (float& value : scaled) value *= 1.0078125F;
  const Finding wrong = judged(scaled, allowing(0.0004, 0.5, 0.5));
  CHECK(wrong.reason == Reason::kExceedsTolerance);
  CHECK(wrong.exceeded == Statistic::kScale);
  CHECK(
      wrong.message ==
      "mlp output, iteration 0, micro-batch 0: all elements together are 1.00781 times the reference's; correct runs: "
      "within 0.0004; on rank 0");
  CHECK(ratio_of(wrong) == doctest::Approx(0.0078125 / 0.0004));
  const Finding same = judged(scaled, allowing(0.008, 0.5, 0.5));
  CHECK(same.verdict == Verdict::kPass);
  CHECK(same.exceeded == Statistic::kNorm);
  REQUIRE(same.statistics.size() == 3);
  CHECK(same.statistics[0].measured == doctest::Approx(0.0078125));
}

TEST_CASE("a smaller tensor is as wrong as a larger one") {
  std::vector<float> scaled = ones();
  for (float& value : scaled) value *= 0.9921875F;
  const Finding wrong = judged(scaled, allowing(0.0004, 0.5, 0.5));
  CHECK(wrong.exceeded == Statistic::kScale);
  CHECK(wrong.message.find("are 0.99219 times") != std::string::npos);
}

TEST_CASE("one wrong row is named") {
  std::vector<float> values = ones();
  for (std::size_t i = 0; i < kSide; ++i) values[5 * kSide + i] *= i % 2 == 0 ? 1.25F : 0.75F;
  const Finding wrong = judged(values, allowing(0.01, 0.1, 0.5));
  CHECK(wrong.exceeded == Statistic::kRow);
  CHECK(
      wrong.message ==
      "mlp output, iteration 0, micro-batch 0: row [5] of 32 differs by 0.25 times the norm of a typical row; correct "
      "runs: up to 0.1; worst at [5, 0]: reference 1, candidate 1.25, on rank 0");
  CHECK(judged(values, allowing(0.01, 0.26, 0.5)).verdict == Verdict::kPass);
}

TEST_CASE("one wrong element is named, not the row that it lies in") {
  std::vector<float> values = ones();
  values[7 * kSide + 3] += 2;
  const Finding wrong = judged(values, allowing(0.01, 0.1, 0.5));
  CHECK(wrong.exceeded == Statistic::kElement);
  CHECK(wrong.message.find(
            "one of 1024 elements differs by 2 times the size of a typical one; correct runs: up to 0.5") !=
        std::string::npos);
  CHECK(judged(values, allowing(0.01, 0.4, 2.1)).verdict == Verdict::kPass);
}

TEST_CASE("an override stands for all that is said of a tensor") {
  std::vector<float> scaled = ones();
  for (float& value : scaled) value *= 1.0078125F;
  ToleranceFile file = allowing(0.0004, 0.5, 0.5);
  file.overrides = {{"mlp", std::nullopt, 0.02, "known to be scaled", 1}};
  const Finding finding = judged(scaled, file);
  CHECK(finding.verdict == Verdict::kPass);
  CHECK(finding.statistics.empty());
}

TEST_SUITE_END();
