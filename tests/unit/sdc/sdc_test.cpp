#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "sdc/report.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("sdc");

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Mismatch mismatch(const std::vector<double>& healthy, const std::vector<double>& suspect) {
  return mismatch_of(std::as_bytes(std::span(healthy)).data(), std::as_bytes(std::span(suspect)).data(),
                     Dtype::kFloat64, static_cast<std::int64_t>(healthy.size()));
}

// Two ranks, two layers of a linear and an activation, two micro-batches. `damage` may change a value.
using Damage = std::function<double(const TensorId& id, std::int32_t rank, std::int64_t i, double value)>;

Trace run(const std::string& run_id, const Damage& damage) {
  TraceBuilder builder;
  builder.axes("tp=2").run_id(run_id);
  const auto add = [&](TensorId id, Kind kind) {
    id.kind = kind;
    TensorSpec spec;
    spec.id = id;
    spec.shape = {2, 4};
    spec.values = [=](std::int32_t rank, std::int64_t i) {
      return damage(id, rank, i, 1.0 + 0.25 * static_cast<double>(i));
    };
    builder.tensor(spec);
  };
  for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
    for (const char* name : {"layers.0.fc", "layers.0.act", "layers.1.fc", "layers.1.act"}) {
      const TensorId id{.microbatch = microbatch, .name = name};
      add(id, Kind::kInput);
      add(id, Kind::kOutput);
    }
  }
  add({.name = "layers.0.fc.weight"}, Kind::kMainGrad);
  return builder.read();
}

Trace healthy_run() {
  return run("healthy", [](const TensorId&, std::int32_t, std::int64_t, double value) { return value; });
}

}  // namespace

TEST_CASE("what differs is counted by its bits, its size only where it has one") {
  const Mismatch result = mismatch({1, 2, 0, 4, kNaN, 0.0, 8}, {1, 3, 1, kNaN, kNaN, -0.0, 2});
  CHECK(result.elements == 7);
  CHECK(result.differing == 5);  // the zeros' bits too
  CHECK(result.first == 1);
  CHECK(result.unbounded == 2);       // 0 became 1, 4 became NaN
  CHECK(result.relative_count == 2);  // 2 -> 3 and 8 -> 2
  CHECK(result.severity() == doctest::Approx((0.5 + 0.75) / 2));
  CHECK(result.difference_square == doctest::Approx(1 + 1 + 36));
  CHECK(result.healthy_square == doctest::Approx(1 + 4 + 16 + 64));
  CHECK(result.nonfinite == 1);  // 4 became NaN; a NaN of other bits is no worse
}

TEST_CASE("a mismatch is found wherever it lies, and counted as a plain loop counts it") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random() % 10000;
    std::vector<double> healthy(count), suspect;
    for (double& value : healthy) value = std::ldexp(static_cast<double>(random()), -20);
    suspect = healthy;
    std::int64_t differing = 0, first = -1;
    for (std::size_t i = 0; i < count; ++i) {
      if (random() % 3000 != 0) continue;
      suspect[i] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(suspect[i]) ^ (1ull << random() % 64));
      ++differing;
      if (first < 0) first = static_cast<std::int64_t>(i);
    }
    const Mismatch result = mismatch(healthy, suspect);
    REQUIRE(result.differing == differing);
    REQUIRE(result.first == first);
  }
}

TEST_CASE("a type is a path without its numbers, a module a name without member") {
  CHECK(submodule_type({.kind = Kind::kOutput, .name = "decoder.layers.12.mlp:0#1"}) == "decoder.layers.*.mlp");
  CHECK(submodule_type({.kind = Kind::kParamGrad, .name = "0.1.block2.weight"}) == "*.*.block2.weight");
}

TEST_CASE("an error is attributed to the call that made it, not to those that passed it on") {
  const Trace healthy = healthy_run();
  // Rank 1's fc of layer 0 is wrong in micro-batch 1; what follows there differs on both ranks.
  const Trace suspect = run("suspect", [](const TensorId& id, std::int32_t rank, std::int64_t i, double value) {
    if (id.microbatch != 1) return value;
    if (id.name == "layers.0.fc") return id.kind == Kind::kOutput && rank == 1 && i == 5 ? -value : value;
    return id.kind == Kind::kMainGrad || i != 5 ? value : 2 * value;
  });
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
  const SdcReport report = summarize_corruption(pairs);
  REQUIRE(report.origins.size() == 1);
  CHECK(report.origins[0].id.name == "layers.0.fc");
  CHECK(report.origins[0].id.microbatch == 1);
  CHECK(report.origins[0].rank == 1);
  CHECK(report.origins[0].ranks == 1);
  CHECK(report.first->id == report.origins[0].id);
  CHECK(nondeterminism_suspected(report, pairs).empty());
  // layers.*.fc in micro-batch 1: layer 0 has 1 of 16 elements, layer 1 has 2 (equation 2); sizes 2 and 1.
  for (const SubmoduleStep& step : report.submodules) {
    if (step.type != "layers.*.fc" || step.microbatch != 1) continue;
    CHECK(step.submodules == 2);
    CHECK(step.frequency == doctest::Approx((1.0 / 16 + 2.0 / 16) / 2));
    CHECK(step.severity == doctest::Approx(2));
    REQUIRE(step.ranks.size() == 2);
    for (const auto& [rank, mismatch] : step.ranks) CHECK(mismatch.elements == 16);
    CHECK(step.ranks.at(0).differing + step.ranks.at(1).differing == 3);
    CHECK(std::max(step.ranks.at(0).severity, step.ranks.at(1).severity) == doctest::Approx(2));
  }
}

TEST_CASE("a program that never repeats itself is suspected") {
  const Trace healthy = healthy_run();
  const Trace other = run("other", [](const TensorId& id, std::int32_t, std::int64_t i, double value) {
    return id.name == "layers.0.fc" && id.kind == Kind::kInput ? value : i == 3 ? value * 1.0001 : value;
  });
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, other, 1);
  const std::string why = nondeterminism_suspected(summarize_corruption(pairs), pairs);
  CHECK(why == "layers.*.fc differs with equal inputs in every one of 2 micro-steps");
}

TEST_CASE("noise to signal is of the model's gradient, of which copies count once") {
  const Trace healthy = healthy_run();
  const Trace suspect = run("suspect", [](const TensorId& id, std::int32_t rank, std::int64_t i, double value) {
    return id.kind == Kind::kMainGrad && rank == 0 && i == 0 ? value + 1 : value;
  });
  double square = 0;  // of the model's gradient, of which both ranks hold a copy
  for (int i = 0; i < 8; ++i) square += std::pow(1 + 0.25 * i, 2);
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 2);
  CHECK(*summarize_corruption(pairs).worst_noise_to_signal() == doctest::Approx(1 / std::sqrt(square)));
}

TEST_CASE("a gradient that is not finite is the worst there is, and the report says so") {
  const Trace healthy = healthy_run();
  for (const double wrong : {kNaN, std::numeric_limits<double>::infinity()}) {
    const Trace suspect = run("suspect", [=](const TensorId& id, std::int32_t rank, std::int64_t i, double value) {
      return id.kind == Kind::kMainGrad && rank == 1 && i == 3 ? wrong : value;
    });
    const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
    const SdcReport report = summarize_corruption(pairs);
    CHECK(std::isinf(*report.worst_noise_to_signal()));
    CHECK(report.steps.at(0).gradient_nonfinite == 1);
    REQUIRE(report.notes.size() == 1);
    CHECK(report.notes[0] ==
          "iteration 0: 1 element of the gradients differs and is not finite in one of the runs: no difference is "
          "larger");
  }
}

TEST_CASE("a gradient that is not finite in both runs has no noise") {
  const auto skipped = [](const TensorId& id, std::int32_t, std::int64_t i, double value) {
    return id.kind == Kind::kMainGrad && i == 3 ? kNaN : value;
  };
  const Trace healthy = run("healthy", skipped), suspect = run("suspect", skipped);
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
  const SdcReport report = summarize_corruption(pairs);
  CHECK(*report.worst_noise_to_signal() == 0);
  CHECK(report.notes.empty());
}

TEST_CASE("noise where the healthy run has no gradient is infinite") {
  const auto with_gradient = [](const std::string& name, double of_rank_0) {
    return run(name, [=](const TensorId& id, std::int32_t rank, std::int64_t, double value) {
      return id.kind != Kind::kMainGrad ? value : rank == 0 ? of_rank_0 : 0;
    });
  };
  const Trace healthy = with_gradient("healthy", 0), suspect = with_gradient("suspect", 0.5);
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
  const SdcReport report = summarize_corruption(pairs);
  CHECK(std::isinf(*report.worst_noise_to_signal()));
  CHECK(report.faulty_copies.empty());  // zeros are equal on all ranks, whatever they are
}

TEST_CASE("of copies the one that is wrong counts, and its rank is named") {
  const Trace healthy = healthy_run();
  for (const std::int32_t faulty : {0, 1}) {
    const Trace suspect = run("suspect", [=](const TensorId& id, std::int32_t rank, std::int64_t i, double value) {
      return id.kind == Kind::kMainGrad && rank == faulty && i == 0 ? value + 1 : value;
    });
    const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
    const SdcReport report = summarize_corruption(pairs);
    REQUIRE(report.faulty_copies.size() == 1);
    CHECK(report.faulty_copies[0].id.name == "layers.0.fc.weight");
    CHECK(report.faulty_copies[0].ranks == std::vector<std::int32_t>{faulty});
    CHECK(report.faulty_copies[0].copies == 2);
  }
}

TEST_CASE("copies that are wrong alike are not told apart") {
  const Trace healthy = healthy_run();
  const Trace suspect = run("suspect", [](const TensorId& id, std::int32_t, std::int64_t i, double value) {
    return id.kind == Kind::kMainGrad && i == 0 ? value + 1 : value;
  });
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
  CHECK(summarize_corruption(pairs).faulty_copies.empty());
}

TEST_CASE("equal shards that the program recorded as parts are no copies") {
  const auto sharded = [](const std::string& name, double of_rank_0) {
    TraceBuilder builder;
    builder.axes("tp=2").run_id(name);
    TensorSpec spec;
    spec.id = {.kind = Kind::kMainGrad, .name = "fc.weight"};
    spec.shape = {2};
    spec.values = [=](std::int32_t rank, std::int64_t) { return rank == 0 ? of_rank_0 : 3.0; };
    spec.mapping = R"({"axes": [{"axis": "tp", "size": 2, "placement": "shard", "dim": 0}]})";
    return builder.tensor(spec).read();
  };
  const Trace healthy = sharded("healthy", 3), suspect = sharded("suspect", 4);
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
  const SdcReport report = summarize_corruption(pairs);
  CHECK(report.faulty_copies.empty());
  CHECK(*report.worst_noise_to_signal() == doctest::Approx(std::sqrt(2.0 / 36)));
}

TEST_CASE("in lock step a module is to blame for what it makes, whatever arrived at it") {
  const Trace healthy = healthy_run();
  const Trace suspect = run("suspect", [](const TensorId& id, std::int32_t, std::int64_t i, double value) {
    if (i != 5 || id.microbatch != 1 || id.name == "layers.0.act") return value;
    if (id.name == "layers.0.fc") return id.kind == Kind::kOutput ? -value : value;
    return id.name == "layers.1.fc" ? 2 * value : value;
  });
  const std::vector<RecordedPair> pairs = pair_recorded(healthy, suspect, 1);
  const auto wrong_modules = [&](bool lock_step) {
    std::vector<std::string> names;
    for (const Origin& origin : summarize_corruption(pairs, lock_step).origins) names.emplace_back(origin.id.name);
    return names;
  };
  CHECK(wrong_modules(false) == std::vector<std::string>{"layers.0.fc"});
  CHECK(wrong_modules(true) == std::vector<std::string>{"layers.0.fc", "layers.1.fc"});
}

TEST_CASE("the worst noise to signal is that of the worst step, whichever it is") {
  const auto worst_of = [](const std::vector<double>& noises) {
    SdcReport report;
    for (const double noise : noises) {
      TrainingStep& step = report.steps.emplace_back();
      step.gradient_noise = noise;
      step.gradient_norm = 2;
    }
    return report.worst_noise_to_signal();
  };
  for (const std::vector<double>& noises : {std::vector<double>{6, 1, 2}, {1, 6, 2}, {2, 1, 6}}) {
    CHECK(*worst_of(noises) == doctest::Approx(3));
  }
  CHECK_FALSE(worst_of({}));
}

TEST_CASE("runs that are not of one program are refused") {
  const Trace healthy = healthy_run();
  const auto other = [](auto change) {
    TraceBuilder builder;
    builder.axes("tp=2").run_id("other");
    change(builder);
    return builder.read();
  };
  const auto zero = [](std::int32_t, std::int64_t) { return 0.0; };
  const Trace of_other_tensors = other([&](TraceBuilder& builder) { builder.tensor("w", Kind::kOutput, {2}, zero); });
  CHECK_THROWS_AS(pair_recorded(healthy, of_other_tensors, 1), InputError);
  const Trace of_other_shape =
      other([&](TraceBuilder& builder) { builder.tensor("layers.0.fc", Kind::kInput, {8}, zero); });
  CHECK_THROWS_AS(pair_recorded(healthy, of_other_shape, 1), InputError);
  const Trace without_a_rank =
      other([&](TraceBuilder& builder) { builder.tensor("layers.0.fc", Kind::kInput, {2, 4}, zero).without_rank(1); });
  CHECK_THROWS_AS(pair_recorded(healthy, without_a_rank, 1), InputError);
  CHECK_THROWS_AS(pair_recorded(healthy, healthy, 1), InputError);
}

TEST_SUITE_END();
