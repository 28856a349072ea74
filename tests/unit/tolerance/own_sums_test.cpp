#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>
#include <span>
#include <tuple>

#include "support/mesh_trace.h"
#include "support/shards.h"
#include "tolerance/default_tolerance.h"
#include "tolerance/estimate.h"

namespace {

using namespace ttrace;

constexpr std::int64_t kTokens = 512, kWidth = 16;

// The nearest bf16.
float rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000U);
}

// The contents of a norm's trace, in one micro-batch: y = x * weight + bias, of which the gradients g are recorded.
class Norm {
 public:
  Norm() {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < kTokens * kWidth; ++i) {
      inputs.push_back(normal(random));
      gradients.push_back(rounded(normal(random)));
    }
    for (std::int64_t i = 0; i < kWidth; ++i) {
      weight.push_back(1.5F);
      bias.push_back(0.25F);
    }
  }

  // The gradient of the weight, or of the bias, each of its sums rounded to bf16 once a token.
  std::vector<float> summed_token_by_token(bool of_bias) const {
    std::vector<float> sums(kWidth);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      float& sum = sums[i % kWidth];
      sum = rounded(sum + gradients[i] * (of_bias ? 1 : inputs[i]));
    }
    return sums;
  }

  OwnRoundings measured(const std::vector<float>& weight_grad, const std::vector<float>& bias_grad) {
    std::vector<float> outputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      outputs.push_back(inputs[i] * weight[i % kWidth] + bias[i % kWidth]);
    }
    add(Kind::kOutput, "norm", 0, {kTokens, kWidth}, outputs);
    add(Kind::kGradOutput, "norm", 0, {kTokens, kWidth}, gradients);
    add(Kind::kParam, "norm.weight", kNoMicrobatch, {kWidth}, weight);
    add(Kind::kParam, "norm.bias", kNoMicrobatch, {kWidth}, bias);
    add(Kind::kParamGrad, "norm.weight", 0, {kWidth}, weight_grad, Dtype::kBFloat16);
    add(Kind::kParamGrad, "norm.bias", 0, {kWidth}, bias_grad, Dtype::kBFloat16);
    return measure_own_sums(alignment);
  }

  std::vector<float> inputs, gradients, weight, bias;

 private:
  void add(Kind kind, const std::string& name, std::int32_t microbatch, Shape shape, const std::vector<float>& values,
           Dtype dtype = Dtype::kFloat32) {
    LogicalTensor tensor = shards.tensor(Dtype::kFloat32, std::move(shape));
    tensor.id = test::tensor_id(kind, name, microbatch);
    shards.add(tensor, test::bytes_of(values), {.parts = Shape(tensor.shape.size(), 1)});
    tensor.dtype = dtype;  // what it was rounded to
    alignment.tensors[tensor.id] = tensor;
  }

  test::Shards shards;
  Alignment alignment;
};

// Two gradients, and the norm of both as PyTorch on the CPU has it: square after square in fp32, in eight lanes.
class NormOfGradients {
 public:
  NormOfGradients() {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& value : large_) value = normal(random);
    for (float& value : small_) value = normal(random);
    for (const auto& [kind, name, shape] : {std::tuple{Kind::kMainGrad, "embed.weight", Shape{2048, 256}},
                                            {Kind::kMainGrad, "norm.weight", Shape{256}},
                                            {Kind::kScalar, "grad_norm", Shape{}},
                                            {Kind::kOutput, "embed", Shape{256}}}) {
      LogicalTensor& tensor = tensors_.emplace_back();
      tensor.id = test::tensor_id(kind, name, kNoMicrobatch);
      tensor.shape = shape;
    }
  }

  static double square(std::span<const float> values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
  }
  double exact() const { return std::sqrt(square(large_) + square(small_)); }
  double exact_without_norm() const { return std::sqrt(square(large_)); }

  float in_lanes(std::size_t lanes) const {
    std::vector<float> sums(lanes);
    for (std::size_t i = 0; i < large_.size(); ++i) sums[i % lanes] += large_[i] * large_[i];
    for (std::size_t i = 0; i < small_.size(); ++i) sums[i % lanes] += small_[i] * small_[i];
    return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0F));
  }

  // A perturbed run that moves an activation, and everything else by a rounding.
  RunDifferences run(double recorded) const {
    RunDifferences run;
    for (const LogicalTensor& tensor : tensors_) run.pairs.push_back({&tensor, &tensor});
    for (const double reference : {square(large_), square(small_), recorded * recorded, 256.0}) {
      Difference& difference = run.differences.emplace_back();
      difference.elements = 256;
      difference.differing = 1;
      difference.reference_square = difference.candidate_square = reference;
      difference.difference_square = 1e-14 * reference;
    }
    return run;
  }

 private:
  std::vector<float> large_ = std::vector<float>(2048 * 256), small_ = std::vector<float>(256);
  std::deque<LogicalTensor> tensors_;
};

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("gradients of a norm that were added up token by token are off, and so may be their sums and steps") {
  Norm norm;
  const OwnRoundings own = norm.measured(norm.summed_token_by_token(false), norm.summed_token_by_token(true));
  REQUIRE(own.size() == 6);
  for (const char* name : {"norm.weight", "norm.bias"}) {
    const double of_gradient = own.at({Kind::kParamGrad, name}).norm;
    CHECK(of_gradient > 2.0 / 128);  // more than two rounding steps
    CHECK(of_gradient < 0.09);       // and no more than the square root of 512, times half a step
    CHECK(own.at({Kind::kMainGrad, name}).norm == of_gradient);
    CHECK(own.at({Kind::kParamDelta, name}).norm == of_gradient);
    CHECK(own.at({Kind::kParamGrad, name}).element >= of_gradient);
    CHECK(own.at({Kind::kParamGrad, name}).scale <= of_gradient);
  }
}

TEST_CASE("a gradient in whose sum most terms were lost is off by no more than roundings of a random sum") {
  Norm norm;
  std::fill(norm.gradients.begin(), norm.gradients.end(), 1.0F);
  const std::vector<float> summed = norm.summed_token_by_token(true);
  CHECK(summed[0] == 256);  // of 512: in bf16, 256 + 1 is 256
  const OwnRoundings own = norm.measured(norm.summed_token_by_token(false), summed);
  CHECK(own.at({Kind::kParamGrad, "norm.bias"}).norm == doctest::Approx(std::sqrt(512.0) / 256));
}

TEST_CASE("a gradient that is no sum of what was recorded is off by no more than fp32 rounds its terms") {
  Norm norm;
  std::vector<float> other = norm.summed_token_by_token(true);
  for (std::size_t i = 0; i < other.size(); i += 2) other[i] *= 1.5F;
  const OwnRoundings own = norm.measured(other, other);
  for (const char* name : {"norm.weight", "norm.bias"}) {
    CHECK(own.at({Kind::kParamGrad, name}).norm == doctest::Approx(0x1p-23 * std::sqrt(512.0) / 6));
  }
}

TEST_CASE("exact gradients are not off") {
  Norm norm;
  std::vector<double> sums(kWidth);
  for (std::size_t i = 0; i < norm.gradients.size(); ++i) sums[i % kWidth] += norm.gradients[i];
  const std::vector<float> exact(sums.begin(), sums.end());
  const OwnRoundings own = norm.measured(norm.summed_token_by_token(false), exact);
  CHECK(own.at({Kind::kMainGrad, "norm.bias"}).norm < 1e-6);
}

TEST_CASE("a norm whose squares were added up in another order passes, one that lacks a parameter does not") {
  const NormOfGradients gradients;
  const double recorded = gradients.in_lanes(8);
  const double off = std::fabs(gradients.exact() - recorded) / recorded;
  REQUIRE(off > 2e-6);  // no two rounding steps of the result
  const std::vector<RunDifferences> runs(3, gradients.run(recorded));
  const ToleranceKey norm = {Kind::kScalar, "grad_norm"};
  CHECK(measure_own_norms(runs[0].pairs, runs[0].differences).at(norm).norm == doctest::Approx(off));
  const double allowed = estimate(runs, nullptr, {}).tensors.at(norm).allowed;
  for (const std::size_t lanes : {4U, 16U, 32U}) {
    CAPTURE(lanes);
    CHECK(std::fabs(gradients.in_lanes(lanes) - recorded) / recorded < allowed);
  }
  CHECK(std::fabs(gradients.exact_without_norm() - recorded) / recorded > allowed);
}

TEST_CASE("a norm that is not that of the gradients is allowed no more for it") {
  const NormOfGradients gradients;
  const RunDifferences run = gradients.run(gradients.exact() * 1.001);
  CHECK(measure_own_norms(run.pairs, run.differences).empty());
}

TEST_CASE("default tolerances allow what the norm of all gradients is off by") {
  const NormOfGradients gradients;
  const double recorded = gradients.in_lanes(8);
  const RunDifferences run = gradients.run(recorded);
  ToleranceFile file;
  file.tensors[{Kind::kScalar, "grad_norm"}] = {};
  widen_by_values(run.pairs, run.differences, file);
  const double allowed = file.tensors.at({Kind::kScalar, "grad_norm"}).allowed;
  CHECK(allowed == doctest::Approx(kUnmeasuredMargin * std::fabs(gradients.exact() - recorded) / recorded));
}

TEST_SUITE_END();
