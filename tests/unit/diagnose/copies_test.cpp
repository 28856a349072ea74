// Tests the causes of values that are another rank's, another time's or another expert's.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "merge/values.h"
#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::int64_t kSquareSide = 8;  // of square tensors

Values square_tensor(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  Values values(kSquareSide * kSquareSide);
  for (double& each : values) each = static_cast<float>(value(random));
  return values;
}

Values mean_of(const Values& a, const Values& b) {
  Values mean(a.size());
  for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = (a[i] + b[i]) / 2;
  return mean;
}

TensorSpec held_by(std::set<std::int32_t> ranks, const TensorId& id, const Values& values) {
  TensorSpec spec;
  spec.id = id;
  spec.shape = {static_cast<std::int64_t>(values.size()) / kSquareSide, kSquareSide};
  spec.values = [values](std::int32_t, std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  spec.ranks = std::move(ranks);
  return spec;
}

RootCause root_of_copies(const std::vector<TensorSpec>& right, const std::string& axes,
                         const std::vector<TensorSpec>& wrong, const std::string& text) {
  const auto trace = [](const std::string& mesh, const std::vector<TensorSpec>& tensors) {
    TraceBuilder builder;
    builder.axes(mesh).run_id(mesh + "-run");
    for (const TensorSpec& tensor : tensors) builder.tensor(tensor);
    return builder.read();
  };
  const std::vector<RootCause> roots = roots_between(trace("", right), trace(axes, wrong), text, allowing(1e-5));
  REQUIRE(!roots.empty());
  return roots[0];
}

Values half_of(const Values& values, std::size_t half) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(half * values.size() / 2);
  return {begin, begin + static_cast<std::ptrdiff_t>(values.size() / 2)};
}

}  // namespace

TEST_CASE("a rank that holds another rank's part, or its own of the iteration before") {
  const TensorId id{.kind = Kind::kParam, .name = "w"}, later{.iteration = 1, .kind = Kind::kParam, .name = "w"};
  const Values first = square_tensor(1), second = square_tensor(2);
  const std::string text = "w:\n  param: {tp_dim: 0}\n";
  const std::vector<TensorSpec> reference = {held_by({}, id, first), held_by({}, later, second)};
  const auto root_with = [&](const Values& of_rank_1, const Values& later_of_rank_1) {
    return root_of_copies(reference, "tp=2",
                          {held_by({0}, id, half_of(first, 0)), held_by({1}, id, of_rank_1),
                           held_by({0}, later, half_of(second, 0)), held_by({1}, later, later_of_rank_1)},
                          text);
  };
  const RootCause of_rank_0 = root_with(half_of(first, 0), half_of(second, 1));
  CHECK(of_rank_0.diagnosis == Cause::kOtherTensor);
  CHECK_MESSAGE(has(of_rank_0.sentence, "the part of rank 1 is that of rank 0"), of_rank_0.sentence);
  const RootCause of_before = root_with(half_of(first, 1), half_of(first, 1));
  CHECK(of_before.diagnosis == Cause::kStale);
  CHECK_MESSAGE(has(of_before.sentence, "the part of rank 1 is that of iteration 0"), of_before.sentence);
  const RootCause of_nobody = root_with(half_of(square_tensor(3), 1), half_of(second, 1));
  CHECK_MESSAGE(of_nobody.diagnosis == Cause::kRegion, of_nobody.sentence);
}

TEST_CASE("a loss of which one rank's term has a factor, as its part of the gradient shows") {
  const Values scores = square_tensor(1);
  const auto times = [](Values values, double factor) {
    for (double& value : values) value *= factor;
    return values;
  };
  const auto loss = [](std::set<std::int32_t> ranks, double value) {
    TensorSpec spec;
    spec.id = {.microbatch = 0, .kind = Kind::kScalar, .name = "loss"};
    spec.values = [value](std::int32_t, std::int64_t) { return value; };
    spec.ranks = std::move(ranks);
    return spec;
  };
  const TensorId gradient{.microbatch = 0, .kind = Kind::kGradOutput, .name = "head"};
  const std::vector<TensorSpec> reference = {loss({}, 2.5), held_by({}, gradient, scores)};
  const auto root_with = [&](double scale, double of_rank_1, double of_rank_0 = 2) {
    return root_of_copies(
        reference, "dp=2",
        {loss({0}, of_rank_0), loss({1}, of_rank_1), held_by({0}, gradient, times(half_of(scores, 0), scale)),
         held_by({1}, gradient, times(half_of(scores, 1), 1.01 * scale))},
        "loss: {scalar: {dp: mean}}\nhead: {grad_output: {dp_dim: 0}}\n");
  };
  const RootCause plain = root_with(1, 3.03), scaled = root_with(8, 3.03), other = root_with(1, 3.3);
  CHECK_MESSAGE(plain.diagnosis == Cause::kRankFactor, plain.sentence);
  CHECK_MESSAGE(has(plain.sentence, "times a number: 1.01 on rank 1;"), plain.sentence);
  CHECK_MESSAGE(scaled.diagnosis == Cause::kRankFactor, scaled.sentence);
  CHECK_MESSAGE(has(scaled.sentence, "1.01 on rank 1, beside a loss scale of 8"), scaled.sentence);
  const RootCause in_loss = root_with(8, 8 * 3.03, 8 * 2);
  CHECK_MESSAGE(has(in_loss.sentence, "1.01 on rank 1, beside a loss scale of 8"), in_loss.sentence);
  CHECK_MESSAGE(other.diagnosis == Cause::kRegion, other.sentence);
}

TEST_CASE("a gradient that is another parameter's") {
  const auto program = [](const Values& k) -> std::vector<TensorSpec> {
    return {held_by({}, {.kind = Kind::kMainGrad, .name = "k.weight"}, k),
            held_by({}, {.kind = Kind::kMainGrad, .name = "v.weight"}, square_tensor(2))};
  };
  const RootCause root = root_of_copies(program(square_tensor(1)), "", program(square_tensor(2)), "");
  CHECK(root.diagnosis == Cause::kOtherTensor);
  CHECK_MESSAGE(has(root.sentence, "it holds the values of v.weight"), root.sentence);
  CHECK(root_of_copies(program(square_tensor(1)), "", program(square_tensor(3)), "").diagnosis != Cause::kOtherTensor);
}

TEST_CASE("gradients of experts that were averaged over the ranks of another axis") {
  const auto own = [](std::int32_t expert, std::int32_t sample) {
    return square_tensor(static_cast<std::uint32_t>(10 + 2 * expert + sample));
  };
  const auto name = [](std::int32_t expert) { return fmt::format("mix.experts.{}.w", expert); };
  std::vector<TensorSpec> reference, wrong, noisy;
  for (std::int32_t expert = 0; expert < 2; ++expert) {
    const TensorId main{.kind = Kind::kMainGrad, .name = name(expert)};
    const TensorId main_of_rank = {.kind = Kind::kMainGrad, .name = name(0)};  // each numbers its experts from 0
    for (std::int32_t sample = 0; sample < 2; ++sample) {
      const std::int32_t rank = expert + 2 * sample;
      reference.push_back(
          held_by({}, {.microbatch = sample, .kind = Kind::kParamGrad, .name = name(expert)}, own(expert, sample)));
      const TensorSpec gradient =
          held_by({rank}, {.microbatch = 0, .kind = Kind::kParamGrad, .name = name(0)}, own(expert, sample));
      for (auto* candidate : {&wrong, &noisy}) candidate->push_back(gradient);
      wrong.push_back(held_by({rank}, main_of_rank, mean_of(own(0, sample), own(1, sample))));
      noisy.push_back(held_by({rank}, main_of_rank, square_tensor(99)));
    }
    reference.push_back(held_by({}, main, mean_of(own(expert, 0), own(expert, 1))));
  }
  const std::string text = "parallelism: {experts: {axis: ep, layers: mix.experts}}\n";
  const RootCause root = root_of_copies(reference, "ep=2,dp=2", wrong, text);
  CHECK(root.diagnosis == Cause::kOtherGroup);
  CHECK_MESSAGE(has(root.sentence,
                    "summed or averaged over the 2 ranks of ep, which hold other parameters of its kind: "
                    "mix.experts.0.w, mix.experts.1.w"),
                root.sentence);
  CHECK(root_of_copies(reference, "ep=2,dp=2", noisy, text).diagnosis != Cause::kOtherGroup);
}

TEST_SUITE_END();
