#include "tolerance/long_sums.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "support/mesh_trace.h"
#include "support/shards.h"
#include "tolerance/remainder.h"

namespace {

using namespace ttrace;

// The tensors of one module, of which nothing but shapes is looked at.
class Module {
 public:
  const LogicalTensor& add(Kind kind, const std::string& name, Shape shape, Dtype dtype = Dtype::kFloat32) {
    LogicalTensor tensor;
    tensor.id = test::tensor_id(kind, name, 0);
    tensor.shape = std::move(shape);
    tensor.dtype = dtype;
    return alignment.tensors[tensor.id] = tensor;
  }

  // How many terms the rounding of the gradient is that of; 0 where it has none.
  double terms(const LogicalTensor& gradient) const {
    const auto rounding = rounding_one_by_one(alignment, gradient);
    return rounding ? std::pow(6 * rounding->norm / 0x1p-23, 2) : 0;
  }

  const LogicalTensor& add_values(Kind kind, const std::string& name, Shape shape, const std::vector<float>& values) {
    LogicalTensor tensor = shards.tensor(Dtype::kFloat32, std::move(shape));
    tensor.id = test::tensor_id(kind, name, 0);
    shards.add(tensor, test::bytes_of(values), {.parts = Shape(tensor.shape.size(), 1)});
    return alignment.tensors[tensor.id] = tensor;
  }

  Alignment alignment;
  test::Shards shards;
};

float sum_of(const std::vector<float>& terms, std::size_t begin, std::size_t end) {
  float sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += terms[i];
  return sum;
}

// Values by channel, in the order of an output of so many samples.
std::vector<float> dealt(const std::vector<float>& by_channel, std::int64_t samples, std::int64_t channels) {
  const auto terms = static_cast<std::int64_t>(by_channel.size()) / channels;
  std::vector<float> values;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const auto begin = by_channel.begin() + channel * terms + sample * (terms / samples);
      values.insert(values.end(), begin, begin + terms / samples);
    }
  }
  return values;
}

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("gradients that are added up one by one have as many terms as samples and places") {
  Module conv;
  conv.add(Kind::kInput, "conv", {8, 3, 16, 16});
  conv.add(Kind::kGradOutput, "conv", {8, 12, 16, 16});
  CHECK(conv.terms(conv.add(Kind::kParamGrad, "conv.weight", {12, 3, 3, 3})) == doctest::Approx(8 * 16 * 16));
  CHECK(conv.terms(conv.add(Kind::kParamGrad, "conv.bias", {12})) == doctest::Approx(8 * 16 * 16));
  Module table;
  table.add(Kind::kInput, "embedding", {4, 32}, Dtype::kInt64);
  table.add(Kind::kGradOutput, "embedding", {4, 32, 64});
  CHECK(table.terms(table.add(Kind::kParamGrad, "embedding.weight", {50, 64})) == doctest::Approx(4 * 32));
  Module rnn;  // whose output is the first of two
  rnn.add(Kind::kGradOutput, "rnn:0", {16, 20, 8});
  CHECK(rnn.terms(rnn.add(Kind::kParamGrad, "rnn.bias_ih_l0", {32})) == doctest::Approx(16 * 20));
  Module slope;
  slope.add(Kind::kGradOutput, "prelu", {8, 12, 16, 16});
  CHECK(slope.terms(slope.add(Kind::kParamGrad, "prelu.weight", {1})) == doctest::Approx(8 * 12 * 16 * 16));
}

TEST_CASE("a product of matrices, and what was not recorded, have no such rounding") {
  Module linear;
  linear.add(Kind::kInput, "linear", {4, 32, 64});
  linear.add(Kind::kGradOutput, "linear", {4, 32, 48});
  CHECK(linear.terms(linear.add(Kind::kParamGrad, "linear.weight", {48, 64})) == 0);
  CHECK(linear.terms(linear.add(Kind::kParamGrad, "other.bias", {48})) == 0);
  CHECK(linear.terms(linear.add(Kind::kMainGrad, "linear.bias", {48})) == 0);
}

TEST_CASE("halves of a sum that are added up one by one are within it, a lost term of 2,048 is not") {
  constexpr std::size_t kTerms = 2048;
  Module conv;
  conv.add(Kind::kGradOutput, "conv", {8, 64, 16, 16});
  const double allowed = 3 * rounding_one_by_one(conv.alignment, conv.add(Kind::kParamGrad, "conv.bias", {64}))->norm;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  double whole_square = 0, by_halves = 0, by_loss = 0;
  for (int element = 0; element < 64; ++element) {
    std::vector<float> terms(kTerms);
    for (float& term : terms) term = uniform(random);
    const double whole = sum_of(terms, 0, kTerms);
    const double halves = sum_of(terms, 0, kTerms / 2) + sum_of(terms, kTerms / 2, kTerms);
    whole_square += whole * whole;
    by_halves += std::pow(halves - whole, 2);
    by_loss += std::pow(sum_of(terms, 1, kTerms) - whole, 2);
  }
  CHECK(std::sqrt(by_halves / whole_square) > 0x1p-23 * std::sqrt(11.0 / 6) * 3);  // more than sums in pairs may be off
  CHECK(std::sqrt(by_halves / whole_square) < allowed);
  CHECK(std::sqrt(by_loss / whole_square) > 100 * allowed);
}

TEST_CASE("a bias beside gradients of no such shape has the rounding of its count, or none") {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 5}, Shape{2, 5, 7}}) {
    Module odd;
    odd.add_values(Kind::kGradOutput, "odd", shape,
                   std::vector<float>(static_cast<std::size_t>(element_count(shape)), 1));
    const auto& gradient = odd.add_values(Kind::kParamGrad, "odd.bias", {3}, {1, 2, 3});
    CHECK(odd.terms(gradient) <= 35);
  }
}

TEST_CASE("terms of a micro-batch that has a gradient of its own are no other's") {
  Module linear;
  linear.add_values(Kind::kGradOutput, "linear", {4, 1}, {-1, -1, -1, -1});
  for (const bool is_of_both : {true, false}) {
    LogicalTensor later = linear.add_values(Kind::kGradOutput, "linear", {4, 1}, {-1, -1, -1, -1});
    later.id.microbatch = 1;
    LogicalTensor made = linear.shards.tensor(Dtype::kFloat32, {4, 1});
    made.id = later.id;
    linear.shards.add(made, test::bytes_of(std::vector<float>{1, 1, 1, 1.5F}), {.parts = {1, 1}});
    linear.alignment.tensors[made.id] = made;
    const auto& gradient = linear.add_values(Kind::kParamGrad, "linear.bias", {1}, {0.5F});
    if (!is_of_both) {
      LogicalTensor own = gradient;
      own.id.microbatch = 1;
      linear.alignment.tensors[own.id] = own;
    }
    CHECK((linear.terms(gradient) > 100) == is_of_both);
  }
}

// A discriminator's last bias: eight real samples pull it up, eight made ones down, and hardly anything is left.
TEST_CASE("what is left of terms that nearly cancel is as far off as the sums on the way are") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> uniform(0.06F, 0.065F);
  double by_halves = 0, allowed = 0;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> terms(16);
    for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = (i < 8 ? -1.0F : 1.0F) * uniform(random);
    const float whole = sum_of(terms, 0, 8) + sum_of(terms, 8, 16);
    const float first = sum_of(terms, 0, 4) + sum_of(terms, 8, 12),
                second = sum_of(terms, 4, 8) + sum_of(terms, 12, 16);
    by_halves += std::pow((first + second - whole) / whole, 2);
    Module linear;
    linear.add_values(Kind::kGradOutput, "linear", {16, 1}, terms);
    const auto rounding =
        rounding_one_by_one(linear.alignment, linear.add_values(Kind::kParamGrad, "linear.bias", {1}, {whole}));
    REQUIRE(rounding);
    CHECK(rounding->norm > 3 * 0x1p-23 * std::sqrt(16) / 6);  // what sums of one sign are off by
    allowed += std::pow(rounding->norm, 2);
    // What is no sum of these terms says nothing.
    const auto& other = linear.add_values(Kind::kParamGrad, "linear.bias", {1}, {whole + 1e-4F});
    CHECK(linear.terms(other) == doctest::Approx(16));
  }
  CHECK(by_halves < allowed);
  CHECK(by_halves > allowed / 20);
}

// An L1 loss makes terms that are alike but for their signs, and sums of them are rounded alike.
TEST_CASE("a bias whose terms are alike may be as far off as the reference's own is from their sum") {
  constexpr std::int64_t kTerms = 512, kChannels = 16;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(1e-4F, 2e-4F);
  std::bernoulli_distribution is_positive(0.85);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<float> all, recorded;
    double difference = 0, square = 0;
    for (std::int64_t channel = 0; channel < kChannels; ++channel) {
      const float size = uniform(random);
      std::vector<float> terms(kTerms);
      for (float& term : terms) term = is_positive(random) ? size : -size;
      all.insert(all.end(), terms.begin(), terms.end());
      recorded.push_back(sum_of(terms, 0, kTerms));
      const float halves = sum_of(terms, 0, kTerms / 2) + sum_of(terms, kTerms / 2, kTerms);
      difference += std::pow(halves - recorded.back(), 2);
      square += std::pow(recorded.back(), 2);
    }
    Module conv;
    const std::int64_t samples = trial % 2 == 0 ? 1 : 32;  // of these, the last dimension is as long as the channels
    conv.add_values(Kind::kGradOutput, "conv", {samples, kChannels, kTerms / samples}, dealt(all, samples, kChannels));
    const auto rounding =
        rounding_one_by_one(conv.alignment, conv.add_values(Kind::kParamGrad, "conv.bias", {kChannels}, recorded));
    REQUIRE(rounding);
    const double apart = std::sqrt(difference / square);
    CHECK(apart > kDefaultMargin * 0x1p-23 * std::sqrt(kTerms) / 6);  // what sums of one sign are off by
    CHECK(apart < kDefaultMargin * rounding->norm);
    // A thousandth of a gradient is none of its roundings.
    std::vector<float> wrong = recorded;
    for (float& sum : wrong) sum *= 1.001F;
    CHECK(conv.terms(conv.add_values(Kind::kParamGrad, "conv.bias", {kChannels}, wrong)) == doctest::Approx(kTerms));
  }
}

TEST_CASE("a magnitude's gradient rounds as that of the weight whose small part it is") {
  constexpr std::size_t kWidth = 64;
  const auto terms_of = [](float along, float across, float length) {
    Module conv;
    conv.add(Kind::kGradOutput, "conv", {4, 1, 256});
    std::vector<float> direction(kWidth), of_direction(kWidth);
    direction[0] = length;
    of_direction[1] = across;
    conv.add_values(Kind::kParamGrad, "conv.weight_v", {1, 1, kWidth}, of_direction);
    for (const auto& [name, values] :
         {std::pair("conv.weight_g", std::vector<float>{2}), std::pair("conv.weight_v", direction)}) {
      LogicalTensor parameter =
          conv.add_values(Kind::kParam, name, {1, 1, static_cast<std::int64_t>(values.size())}, values);
      conv.alignment.tensors.erase(parameter.id);
      parameter.id.microbatch = kNoMicrobatch;
      conv.alignment.tensors[parameter.id] = parameter;
    }
    return conv.terms(conv.add_values(Kind::kParamGrad, "conv.weight_g", {1, 1, 1}, {along}));
  };
  CHECK(terms_of(1, 0, 4) == doctest::Approx(4 * 256));
  CHECK(terms_of(1, 1, 4) == doctest::Approx(4 * 256));  // of a random direction it is an eighth
  // Of w's gradient 100 * |v| / g lies across v, and 1 along it.
  CHECK(terms_of(1, 100, 4) == doctest::Approx(4 * 256 * (1 + 200 * 200) / 64.0));
  // What hardly anything is left of is off by no more than a check takes for rounding.
  CHECK(terms_of(1, 1e9F, 4) == doctest::Approx(std::pow(6 * kMostOfRemainder / 0x1p-23, 2)));
}

TEST_SUITE_END();
