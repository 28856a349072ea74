// Tests the causes of what ranks make of their own samples alone, of samples that weigh otherwise, and of averages that
// follow otherwise; and that other errors do not get these.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "merge/values.h"
#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::int64_t kRowsOfBatch = 64, kChannels = 8;

Values drawn_samples(std::uint32_t seed, double low = -1, double high = 1,
                     std::size_t count = kRowsOfBatch * kChannels) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(low, high);
  Values values(count);
  for (double& each : values) each = static_cast<float>(value(random));
  return values;
}

// A tensor of both runs: of the reference whole, of the candidate in rows on two ranks, or whole on each.
struct TensorOfRun {
  TensorId id;
  Shape shape;
  Values values;
  bool is_split = false;
};

Trace trace_of_run(const std::string& axes, const std::vector<TensorOfRun>& tensors) {
  TraceBuilder builder;
  builder.axes(axes).run_id(axes + "-run");
  for (const TensorOfRun& tensor : tensors) {
    const bool is_cut = tensor.is_split && !axes.empty();
    TensorSpec spec;
    spec.id = tensor.id;
    spec.shape = tensor.shape;
    if (is_cut) spec.shape[0] /= 2;
    const std::size_t part = is_cut ? tensor.values.size() / 2 : 0;
    spec.values = [values = tensor.values, part](std::int32_t rank, std::int64_t i) {
      return values[static_cast<std::size_t>(rank) * part + static_cast<std::size_t>(i)];
    };
    builder.tensor(spec);
  }
  return builder.read();
}

RootCause root_of_runs(const std::vector<TensorOfRun>& right, const std::vector<TensorOfRun>& wrong,
                       double allowed = 1e-5, const std::string& axes = "dp=2") {
  const std::string text = "'*': {input: {dp_dim: 0}, output: {dp_dim: 0}, grad_output: {dp_dim: 0}}\n";
  const auto roots = roots_between(trace_of_run("", right), trace_of_run(axes, wrong), text, allowing(allowed));
  REQUIRE(!roots.empty());
  return roots[0];
}

TensorOfRun batch_of(Kind kind, const Values& values) {
  return {{.microbatch = 0, .kind = kind, .name = "fc"}, {kRowsOfBatch, kChannels}, values, true};
}

RootCause root_of_batch(Kind kind, const Values& right, const Values& wrong) {
  return root_of_runs({batch_of(kind, right)}, {batch_of(kind, wrong)});
}

// The values of each channel, in `parts` stretches of rows, shifted and scaled to a mean of 0 and a deviation of 1.
Values standardised(Values values, std::int64_t parts) {
  const std::int64_t rows = kRowsOfBatch / parts;
  for (std::int64_t k = 0; k < parts * kChannels; ++k) {
    const auto at = [&](std::int64_t row) -> double& {
      return values[static_cast<std::size_t>((k / kChannels * rows + row) * kChannels + k % kChannels)];
    };
    double sum = 0, square = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += at(row);
    for (std::int64_t row = 0; row < rows; ++row) square += std::pow(at(row) - sum / static_cast<double>(rows), 2);
    const double deviation = std::sqrt(square / static_cast<double>(rows - 1));
    for (std::int64_t row = 0; row < rows; ++row) at(row) = (at(row) - sum / static_cast<double>(rows)) / deviation;
  }
  return values;
}

// Each element times what `factor` says of it, by its number.
template <typename FactorOf>
Values times_each(Values values, const FactorOf& factor) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factor(i, values[i]);
  return values;
}

bool is_of_rank_0(std::size_t i) { return i < static_cast<std::size_t>(kRowsOfBatch * kChannels / 2); }

}  // namespace

TEST_CASE("inputs that each rank standardises by its own samples") {
  const Values drawn = drawn_samples(1, 0, 3);
  const RootCause own = root_of_batch(Kind::kInput, standardised(drawn, 1), standardised(drawn, 2));
  CHECK(own.diagnosis == Cause::kOwnSamples);
  CHECK_MESSAGE(has(own.sentence, "standardised by itself, in each of the 8 channels of dimension 1"), own.sentence);
  const RootCause other = root_of_batch(Kind::kInput, standardised(drawn, 1), standardised(drawn_samples(2), 2));
  CHECK_MESSAGE(other.diagnosis != Cause::kOwnSamples, other.sentence);
}

TEST_CASE("parts that have a factor and an offset each, and one that has them alone") {
  const Values right = drawn_samples(3);
  Values wrong = times_each(right, [](std::size_t i, double) { return is_of_rank_0(i) ? 1.25 : 0.75; });
  for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] += is_of_rank_0(i) ? 0.5 : -0.25;
  const RootCause root = root_of_batch(Kind::kOutput, right, wrong);
  CHECK(root.diagnosis == Cause::kRankFactor);
  CHECK_MESSAGE(has(root.sentence, "1.25 times it and 0.5 on rank 0, 0.75 times it and -0.25 on rank 1"),
                root.sentence);
  const Values noise = drawn_samples(4, -0.01, 0.01);
  for (std::size_t i = 0; i < wrong.size(); ++i) wrong[i] += noise[i];
  const RootCause noisy = root_of_batch(Kind::kOutput, right, wrong);
  CHECK_MESSAGE(!noisy.diagnosis, noisy.sentence);
}

TEST_CASE("ranks that divide by numbers of their own, which average to that of all") {
  const Values right = drawn_samples(5);
  const auto root_with = [&](double first, double second) {
    return root_of_batch(Kind::kGradOutput, right,
                         times_each(right, [&](std::size_t i, double) { return is_of_rank_0(i) ? first : second; }));
  };
  const RootCause own = root_with(1.25, 1 / 1.2);  // 1 / 1.25 and 1.2 average 1
  CHECK(own.diagnosis == Cause::kMeanOfMeans);
  CHECK_MESSAGE(has(own.sentence, "one over these numbers averages 1"), own.sentence);
  CHECK(root_with(1.25, 0.8).diagnosis == Cause::kRankFactor);
  CHECK(root_with(1.01, 1).diagnosis == Cause::kRankFactor);
}

TEST_CASE("a gradient whose positive and negative elements have other factors, on all ranks or on each") {
  const Values right = drawn_samples(6);
  const RootCause all = root_of_batch(Kind::kGradOutput, right,
                                      times_each(right, [](std::size_t, double value) { return value > 0 ? 1 : 2; }));
  CHECK(all.diagnosis == Cause::kOtherLoss);
  CHECK_MESSAGE(has(all.sentence, "times one number, and what is negative times another (1 and 2)"), all.sentence);
  const RootCause each = root_of_batch(Kind::kGradOutput, right, times_each(right, [](std::size_t i, double value) {
                                         return (value > 0 ? 1 : 2) + (is_of_rank_0(i) ? 0.5 : 0.25);
                                       }));
  CHECK(each.diagnosis == Cause::kOwnSamples);
  CHECK_MESSAGE(has(each.sentence, "(1.5 and 2.5 on rank 0, 1.25 and 2.25 on rank 1)"), each.sentence);
}

TEST_CASE("samples that weigh otherwise each, and an error that is no weight") {
  const Values right = drawn_samples(7), weights = drawn_samples(8, 0.5, 1.5, kRowsOfBatch);
  const auto by_row = [&](std::size_t i, double) { return weights[i / kChannels]; };
  const RootCause root = root_of_batch(Kind::kGradOutput, right, times_each(right, by_row));
  CHECK(root.diagnosis == Cause::kOtherLoss);
  CHECK_MESSAGE(has(root.sentence, "each sample has the reference's gradient times a number of its own"),
                root.sentence);
  const RootCause without = root_of_batch(
      Kind::kGradOutput, right, times_each(right, [](std::size_t i, double) { return i / kChannels < 5 ? 0 : 1; }));
  CHECK_MESSAGE(without.diagnosis == Cause::kRegion, without.sentence);
  const RootCause other = root_of_batch(Kind::kGradOutput, right, drawn_samples(9));
  CHECK_MESSAGE(!other.diagnosis, other.sentence);
}

namespace {

// The gradient of log-probabilities of labels with these weights, one a row, plus `more` in every element.
Values gradient_of_weighted(const Values& scores, const Values& weights, const Values& more) {
  Values gradient = more;
  for (std::int64_t row = 0; row < kRowsOfBatch; ++row) {
    const auto at = [&](std::int64_t j) { return static_cast<std::size_t>(row * kChannels + j); };
    double total = 0;
    for (std::int64_t j = 0; j < kChannels; ++j) total += std::exp(scores[at(j)]);
    for (std::int64_t j = 0; j < kChannels; ++j) {
      gradient[at(j)] += weights[static_cast<std::size_t>(row)] *
                         (std::exp(scores[at(j)]) / total - (j == row * 3 % kChannels ? 1 : 0));
    }
  }
  return gradient;
}

RootCause root_of_weights(const Values& right, const Values& wrong, const Values& more) {
  const Values scores = drawn_samples(10);
  const TensorOfRun output = batch_of(Kind::kOutput, scores);
  return root_of_runs({output, batch_of(Kind::kGradOutput, gradient_of_weighted(scores, right, more))},
                      {output, batch_of(Kind::kGradOutput, gradient_of_weighted(scores, wrong, more))});
}

}  // namespace

TEST_CASE("advantages that each rank normalises by its own mean, beside nothing or an entropy bonus") {
  Values drawn = drawn_samples(11, -1, 1, kRowsOfBatch), own = drawn;
  double all = 0, halves[2] = {};
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    all += drawn[i];
    halves[i / (kRowsOfBatch / 2)] += drawn[i];
  }
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    own[i] = (i < kRowsOfBatch / 2 ? 1.1 : 0.9) * (drawn[i] - halves[i / (kRowsOfBatch / 2)] / (kRowsOfBatch / 2));
    drawn[i] -= all / kRowsOfBatch;
  }
  const Values nothing(kRowsOfBatch * kChannels);
  const RootCause root = root_of_weights(drawn, own, nothing);
  CHECK(root.diagnosis == Cause::kOwnSamples);
  CHECK_MESSAGE(has(root.sentence, "each rank normalises them by its own mean"), root.sentence);
  const RootCause beside = root_of_weights(drawn, own, drawn_samples(12, -0.1, 0.1));
  CHECK(beside.diagnosis == Cause::kOtherLoss);
  CHECK_MESSAGE(has(beside.sentence, "and what else is in it is right"), beside.sentence);
  const RootCause others = root_of_weights(drawn, drawn_samples(13, -1, 1, kRowsOfBatch), nothing);
  CHECK(others.diagnosis == Cause::kOtherLoss);
  CHECK_MESSAGE(has(others.sentence, "the rows have other weights"), others.sentence);
}

namespace {

constexpr std::size_t kOfParameter = 32;

struct AverageOfRun {
  double taken = 0.01;  // of the parameter
  bool is_before_step = false;
  bool is_noisy = false;
  bool begins_as_parameter = false;
};

std::vector<TensorOfRun> run_with_average(const AverageOfRun& how, std::int32_t iterations = 1) {
  std::vector<TensorOfRun> tensors;
  Values average = drawn_samples(20, -1, 1, kOfParameter), before = drawn_samples(21, -1, 1, kOfParameter);
  if (how.begins_as_parameter) average = before;
  for (std::int32_t iteration = 0; iteration < iterations; ++iteration) {
    const Values step = drawn_samples(22 + static_cast<std::uint32_t>(iteration), -0.1, 0.1, kOfParameter);
    Values after = before;
    const bool is_right = iteration + 1 < iterations;  // the mistake is in the last iteration
    const double taken = is_right ? 0.01 : how.taken;
    for (std::size_t i = 0; i < kOfParameter; ++i) {
      after[i] += step[i];
      average[i] = (1 - taken) * average[i] + taken * (how.is_before_step && !is_right ? before[i] : after[i]);
      if (how.is_noisy && !is_right) average[i] += step[(i * 7 + 1) % kOfParameter];
    }
    const auto add = [&](Kind kind, const std::string& name, const Values& values) {
      tensors.push_back({{.iteration = iteration, .kind = kind, .name = name}, {kOfParameter}, values});
    };
    add(Kind::kParam, "fc.weight", before);
    add(Kind::kParamAfter, "fc.weight", after);
    add(Kind::kBufferAfter, "Net.fc.weight", average);
    before = after;
  }
  return tensors;
}

}  // namespace

TEST_CASE("a moving average that is updated before the step, or by another decay") {
  const auto root_with = [](const AverageOfRun& how, std::int32_t iterations = 1) {
    return root_of_runs(run_with_average({}, iterations), run_with_average(how, iterations), 1e-6);
  };
  const RootCause early = root_with({.is_before_step = true});
  CHECK(early.diagnosis == Cause::kOtherAverage);
  CHECK_MESSAGE(has(early.sentence, "it takes 0.01 of fc.weight as that was before its step"), early.sentence);
  const RootCause faster = root_with({.taken = 0.1});
  CHECK(faster.diagnosis == Cause::kOtherAverage);
  CHECK_MESSAGE(has(faster.sentence, "it follows fc.weight by another decay: 0.9091 times the reference's"),
                faster.sentence);
  const RootCause later = root_with({.taken = 0.1}, 2);
  CHECK_MESSAGE(has(later.sentence, "by another decay: 0.9, the reference's by 0.99"), later.sentence);
  // An average that begins as the parameter lacks a part of the step with another decay, and all of it from before that.
  const auto root_from_start = [](const AverageOfRun& how) {
    return root_of_runs(run_with_average({.begins_as_parameter = true}), run_with_average(how), 1e-6);
  };
  const RootCause slower = root_from_start({.taken = 0.001, .begins_as_parameter = true});
  CHECK_MESSAGE(has(slower.sentence, "it follows fc.weight by another decay: 1.009 times"), slower.sentence);
  const RootCause still = root_from_start({.is_before_step = true, .begins_as_parameter = true});
  CHECK_MESSAGE(has(still.sentence, "it takes 0.01 of fc.weight as that was before its step"), still.sentence);
  const RootCause noisy = root_with({.is_noisy = true});
  CHECK_MESSAGE(noisy.diagnosis != Cause::kOtherAverage, noisy.sentence);
}

TEST_CASE("running statistics that take the variance of another count, or with another momentum") {
  constexpr std::int64_t kWide = 32, kSamples = 16;
  const Values samples = drawn_samples(30, -2, 2, kWide * kSamples), was = drawn_samples(31, 0.5, 1.5, kWide);
  const auto run = [&](double momentum, double times, double noise) {
    Values after = was;
    for (std::int64_t c = 0; c < kWide; ++c) {
      double sum = 0, square = 0;
      for (std::int64_t row = 0; row < kSamples; ++row) sum += samples[static_cast<std::size_t>(row * kWide + c)];
      for (std::int64_t row = 0; row < kSamples; ++row) {
        square += std::pow(samples[static_cast<std::size_t>(row * kWide + c)] - sum / kSamples, 2);
      }
      double& value = after[static_cast<std::size_t>(c)];
      value = (1 - momentum) * value + momentum * times * square / kSamples + (c % 3 == 0 ? noise : 0);
    }
    return std::vector<TensorOfRun>{
        {{.kind = Kind::kBuffer, .name = "norm.running_var"}, {kWide}, was},
        {{.microbatch = 0, .kind = Kind::kInput, .name = "norm"}, {kSamples, kWide}, samples, true},
        {{.kind = Kind::kBufferAfter, .name = "norm.running_var"}, {kWide}, after}};
  };
  const std::vector<TensorOfRun> right = run(0.1, 16.0 / 15, 0);
  const RootCause biased = root_of_runs(right, run(0.1, 1, 0)), counted = root_of_runs(right, run(0.1, 8.0 / 7, 0)),
                  faster = root_of_runs(right, run(0.2, 16.0 / 15, 0)),
                  noisy = root_of_runs(right, run(0.1, 16.0 / 15, 0.1));
  CHECK(biased.diagnosis == Cause::kOtherAverage);
  CHECK_MESSAGE(has(biased.sentence, "as it is, the reference's takes it 1.067 times, n / (n - 1) of n = 16"),
                biased.sentence);
  CHECK_MESSAGE(has(counted.sentence, "1.143 times, n / (n - 1) of n = 8"), counted.sentence);
  CHECK_MESSAGE(has(faster.sentence, "it takes 0.2 of the variance of the module's input, the reference's 0.1"),
                faster.sentence);
  CHECK_MESSAGE(noisy.diagnosis != Cause::kOtherAverage, noisy.sentence);
}

TEST_CASE(
    "gradients of the iteration before that are in all of this one by one clipping factor, be they of few values") {
  const auto run = [](double left, bool is_noisy) {
    std::vector<TensorOfRun> tensors;
    for (const std::int32_t iteration : {0, 1}) {
      for (const std::size_t size : {32U, 3U, 12U}) {
        const auto seed = static_cast<std::uint32_t>(size);
        const Values before = drawn_samples(40 + seed, -1, 1, size);
        const Values term = iteration == 0 ? before : drawn_samples(60 + seed, -1, 1, size);
        Values sum = term;
        for (std::size_t i = 0; i < size && iteration == 1; ++i) {
          sum[i] += left * (is_noisy && size < 16 ? term[i] : before[i]);
        }
        TensorId id{
            .iteration = iteration, .microbatch = 0, .kind = Kind::kParamGrad, .name = fmt::format("fc{}.w", size)};
        tensors.push_back({id, {static_cast<std::int64_t>(size)}, term});
        id.microbatch = kNoMicrobatch;
        tensors.push_back({id.with_kind(Kind::kMainGrad), {static_cast<std::int64_t>(size)}, sum});
      }
    }
    return tensors;
  };
  const RootCause root = root_of_runs(run(0, false), run(0.25, false), 1e-5, "");
  CHECK(root.diagnosis == Cause::kLeftOver);
  CHECK_MESSAGE(has(root.sentence, "0.25 times the gradient of iteration 0 is still in it"), root.sentence);
  CHECK_MESSAGE(root.alike.size() == 2, root.sentence);
  const RootCause some = root_of_runs(run(0, false), run(0.25, true), 1e-5, "");
  CHECK_MESSAGE(some.alike.empty(), some.sentence);
}

TEST_SUITE_END();
