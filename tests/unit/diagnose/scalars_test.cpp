// Tests the causes of losses and norms that are wrong: what their gradients tell of them, and that other errors are not
// called so.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "diagnose/cross_entropy.h"
#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::size_t kScored = 24, kClasses = 8;  // rows: two sequences of 12

struct ScalarTensor {
  TensorId id;
  Shape shape;
  Values values;
  std::string module_class = "";
};

Values drawn_scores(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value;
  Values values(kScored * kClasses);
  for (double& each : values) each = static_cast<float>(value(random));
  return values;
}

std::size_t label_of(std::size_t row) { return (row * 5 + row / 7) % kClasses; }

// A cross entropy of 24 rows, of which every third is ignored.
CrossEntropy plain_entropy(double divisor) {
  CrossEntropy entropy{kClasses, 1, 0, 0, {}};
  for (std::size_t row = 0; row < kScored; ++row) {
    entropy.rows.emplace_back();
    if (row % 3 != 0) entropy.rows.back() = RowOfEntropy{label_of(row), 1 / divisor};
  }
  return entropy;
}

Trace trace_of_scalars(const std::vector<ScalarTensor>& tensors, const std::string& run) {
  TraceBuilder builder;
  builder.axes("").run_id(run);
  for (const ScalarTensor& tensor : tensors) {
    TensorSpec spec;
    spec.id = tensor.id;
    spec.shape = tensor.shape;
    spec.module_class = tensor.module_class;
    spec.values = [values = tensor.values](std::int32_t, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    builder.tensor(spec);
  }
  return builder.read();
}

RootCause root_between(const std::vector<ScalarTensor>& right, const std::vector<ScalarTensor>& wrong,
                       double allowed = 1e-5) {
  const Trace a = trace_of_scalars(right, "reference"), b = trace_of_scalars(wrong, "candidate");
  const std::vector<RootCause> roots = roots_between(a, b, "", allowing(allowed));
  REQUIRE(!roots.empty());
  return roots[0];
}

TensorId of_head(Kind kind, std::int32_t microbatch = 0) {
  return {.microbatch = microbatch, .kind = kind, .name = "head"};
}

// Two micro-batches whose losses are these cross entropies and one more; that of the first `further` more.
std::vector<ScalarTensor> program_of(const std::function<CrossEntropy(std::int32_t)>& entropy, double further = 0) {
  std::vector<ScalarTensor> tensors;
  for (std::int32_t microbatch = 0; microbatch < 2; ++microbatch) {
    const Values scores = drawn_scores(7 + static_cast<std::uint32_t>(microbatch));
    const Shape shape = {2, kScored / 2, kClasses};
    tensors.push_back({of_head(Kind::kOutput, microbatch), shape, scores});
    const double loss = 1 + entropy(microbatch).value_of(scores) + (microbatch == 0 ? further : 0);
    tensors.push_back({{.microbatch = microbatch, .kind = Kind::kScalar, .name = "loss"}, {}, {loss}});
    tensors.push_back({of_head(Kind::kGradOutput, microbatch), shape, entropy(microbatch).gradient_of(scores)});
  }
  return tensors;
}

CrossEntropy right_entropy(std::int32_t microbatch) {
  CrossEntropy entropy = plain_entropy(30);
  if (microbatch == 1) {
    for (std::size_t row = 12; row < kScored; ++row) {
      if (row % 3 != 0 && row > 14) entropy.rows[row].reset();
    }
  }
  return entropy;  // 16 and 10 rows that count
}

// The cause of a loss whose gradient is that of the changed cross entropy, in micro-batch 0.
RootCause root_where(const std::function<void(CrossEntropy&)>& change, double further = 0) {
  const auto wrong = [&](std::int32_t microbatch) {
    CrossEntropy entropy = right_entropy(microbatch);
    if (microbatch == 0) change(entropy);
    return entropy;
  };
  return root_between(program_of(right_entropy), program_of(wrong, further));
}

void check_cause(const RootCause& root, Cause cause, const std::string& words) {
  CHECK_MESSAGE(root.diagnosis == cause, root.sentence);
  CHECK_MESSAGE(has(root.sentence, words), root.sentence);
}

}  // namespace

TEST_CASE("a cross entropy is read from its scores and its gradient") {
  const Values scores = drawn_scores(3);
  for (const double temperature : {1.0, 0.7}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const double z_loss : {0.0, 1e-2}) {
        if (temperature != 1 && smoothing != 0) continue;  // the slope of a smoothed one is not one over it
        CrossEntropy entropy = plain_entropy(16);
        entropy.temperature = temperature;
        entropy.smoothing = smoothing;
        entropy.z_loss = z_loss;
        const auto read = read_cross_entropy(scores, entropy.gradient_of(scores), kClasses, 1e-6);
        REQUIRE(read);
        CHECK(read->temperature == doctest::Approx(temperature));
        CHECK(read->smoothing == doctest::Approx(smoothing));
        CHECK(read->z_loss == doctest::Approx(z_loss));
        CHECK(read->counted() == 16);
        CHECK(read->rows[1]->label == entropy.rows[1]->label);
        CHECK(read->rows[1]->weight == doctest::Approx(1.0 / 16));
      }
    }
  }
  CHECK_FALSE(read_cross_entropy(scores, drawn_scores(4), kClasses, 1e-6));
}

TEST_CASE("a loss that is divided by another number of labels, as its gradient shows") {
  const auto divided_by = [](double number) {
    return root_where([number](CrossEntropy& entropy) {
      for (auto& row : entropy.rows) {
        if (row) row->weight = 1 / number;
      }
    });
  };
  check_cause(divided_by(26 + 1), Cause::kOtherLoss,
              "divided by 27 (the 26 labels that count of all micro-batches, and one too many)");
  check_cause(divided_by(2 * 16), Cause::kOtherLoss,
              "16 labels that count in its own micro-batch, times the 2 micro-batches");
  check_cause(divided_by(48), Cause::kOtherLoss, "all rows of all micro-batches, whether they count or not");
  check_cause(divided_by(1), Cause::kOtherLoss, "the loss is a sum over the labels");
  check_cause(divided_by(60), Cause::kOtherLoss, "are 0.5 times the reference's: it is divided by 60");
}

TEST_CASE("a loss at another temperature, smoothed, or with a z-loss, as its gradient shows") {
  check_cause(root_where([](CrossEntropy& entropy) { entropy.temperature = 0.8; }), Cause::kOtherLoss,
              "divided by a temperature of 0.8 before the cross entropy");
  check_cause(root_where([](CrossEntropy& entropy) { entropy.smoothing = 0.1; }), Cause::kOtherLoss, "smoothed by 0.1");
  check_cause(root_where([](CrossEntropy& entropy) { entropy.z_loss = 1e-2; }), Cause::kOtherLoss,
              "0.01 times a z-loss");
}

TEST_CASE("a loss of other labels, or of other rows, as its gradient shows") {
  check_cause(root_where([](CrossEntropy& entropy) {
                for (std::size_t row = kScored - 1; row > 0; --row) {
                  if (entropy.rows[row] && entropy.rows[row - 1])
                    entropy.rows[row]->label = entropy.rows[row - 1]->label;
                }
              }),
              Cause::kOtherLoss, "have other labels than the reference's");
  check_cause(root_where([](CrossEntropy& entropy) {
                for (std::size_t row = kScored - 1; row > 0; --row) {
                  if (row % 12 == 0) continue;  // a sequence begins
                  const bool counts = entropy.rows[row - 1].has_value();
                  entropy.rows[row].reset();
                  if (counts) entropy.rows[row] = RowOfEntropy{label_of(row), 1.0 / 30};
                }
              }),
              Cause::kOtherLoss, "its mask is displaced by 1");
}

TEST_CASE("a loss that is wrong by another amount than its gradient tells is not explained by that") {
  const auto hotter = [](CrossEntropy& entropy) { entropy.temperature = 0.8; };
  CHECK(root_where(hotter).diagnosis == Cause::kOtherLoss);
  check_cause(root_where(hotter, 0.1), Cause::kRegion, "does not account for all that the loss is wrong by");
  const auto multiple = [](double factor, double further) -> std::vector<ScalarTensor> {
    Values gradient = drawn_scores(1);
    for (double& value : gradient) value *= factor;
    return {{{.microbatch = 0, .kind = Kind::kScalar, .name = "loss"}, {}, {3 * factor + further}},
            {of_head(Kind::kGradOutput), {2, kScored / 2, kClasses}, gradient}};
  };
  check_cause(root_between(multiple(1, 0), multiple(1.01, 0)), Cause::kUniformFactor, "1.01 times the reference's");
  check_cause(root_between(multiple(1, 0), multiple(1.01, 0.1)), Cause::kRegion, "does not account for all");
}

TEST_CASE("a gradient that is no other cross entropy is not called one") {
  const auto noisy = [](std::int32_t) { return right_entropy(0); };
  std::vector<ScalarTensor> wrong = program_of(noisy, 0.1);
  std::mt19937 random(5);
  std::normal_distribution<double> value(0, 1e-3);
  for (ScalarTensor& tensor : wrong) {
    if (tensor.id.kind != Kind::kGradOutput) continue;
    for (double& each : tensor.values) each += value(random);
  }
  CHECK(root_between(program_of(noisy), wrong).diagnosis != Cause::kOtherLoss);
}

TEST_CASE("a further loss that counts otherwise in a loss") {
  const auto program = [](double times, double value, double further) -> std::vector<ScalarTensor> {
    return {{{.microbatch = 0, .kind = Kind::kOutput, .name = "balance"}, {}, {value}},
            {{.microbatch = 0, .kind = Kind::kScalar, .name = "loss"}, {}, {3 + times * value + further}},
            {{.microbatch = 0, .kind = Kind::kGradOutput, .name = "balance"}, {}, {times}}};
  };
  check_cause(root_between(program(0.25, 0.7, 0), program(0.5, 0.7, 0)), Cause::kOtherLoss,
              "what balance returns is in it 0.5 times, 2 times as often as in the reference");
  CHECK_FALSE(root_between(program(0.25, 0.7, 0), program(0.5, 0.7, 0.1)).diagnosis);
}

TEST_CASE("norms of other gradients than all") {
  const auto gradient = [](const std::string& name, std::uint32_t seed) -> ScalarTensor {
    return {{.kind = Kind::kMainGrad, .name = name}, {2, kScored / 2, kClasses}, drawn_scores(seed)};
  };
  std::vector<ScalarTensor> gradients = {gradient("embedding.weight", 1), gradient("layers.0.fc.weight", 2),
                                         gradient("layers.1.fc.weight", 3), gradient("head.weight", 4)};
  std::vector<double> squares;
  for (const ScalarTensor& each : gradients) squares.push_back(dot_of(each.values, each.values));
  const double all = squares[0] + squares[1] + squares[2] + squares[3];
  const auto root_of_norm = [&](double norm, const char* name = "grad_norm") {
    const auto program = [&](double value) {
      std::vector<ScalarTensor> tensors = gradients;
      for (const char* table : {"embedding", "layers.1.fc"}) {
        tensors.push_back({{.microbatch = 0, .kind = Kind::kOutput, .name = table}, {1}, {1}, "torch.nn.Embedding"});
      }
      tensors.push_back({{.kind = Kind::kScalar, .name = name}, {}, {value}});
      return tensors;
    };
    return root_between(program(std::sqrt(all)), program(norm));
  };
  check_cause(root_of_norm(std::sqrt(all - squares[0])), Cause::kOtherNorm,
              "the norm lacks the gradients of embedding");
  check_cause(root_of_norm(std::sqrt(squares[1] + squares[3])), Cause::kOtherNorm,
              "the norm lacks the gradients of all modules of class Embedding (embedding, layers.1.fc)");
  check_cause(root_of_norm(std::sqrt(squares[2])), Cause::kOtherNorm, "the gradients of layers.1");
  check_cause(root_of_norm(all), Cause::kOtherNorm, "the root was not taken");
  CHECK_FALSE(root_of_norm(std::sqrt(all) * 1.03).diagnosis);
  CHECK_FALSE(root_of_norm(all, "norm_of_something").diagnosis);
  // A tied parameter has two names, and one gradient.
  gradients.push_back({{.kind = Kind::kMainGrad, .name = "tied.weight"}, gradients[0].shape, gradients[0].values});
  check_cause(root_of_norm(std::sqrt(all - squares[1])), Cause::kOtherNorm, "the norm lacks the gradients of layers.0");
  // 21.4 has more digits than bfloat16 has.
  const double norm = std::sqrt(all), step = std::ldexp(1, static_cast<int>(std::floor(std::log2(norm))) - 7);
  const double rounded = std::nearbyint(norm / step) * step;
  if (std::abs(rounded - norm) > 1e-5 * norm) {
    check_cause(root_of_norm(rounded), Cause::kCoarserPrecision, "rounded to bfloat16");
  }
}

TEST_CASE("a norm that lacks the gradients which one rank alone holds") {
  constexpr std::int32_t kRanks = 4;
  const auto gradient = [](std::uint32_t seed, std::set<std::int32_t> ranks, const std::string& name) {
    TensorSpec spec;
    spec.id = {.kind = Kind::kMainGrad, .name = name};
    spec.shape = {kScored, kClasses};
    spec.values = [values = drawn_scores(seed)](std::int32_t, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    spec.ranks = std::move(ranks);
    return spec;
  };
  const auto square = [](std::uint32_t seed) { return dot_of(drawn_scores(seed), drawn_scores(seed)); };
  const double of_others = square(10) + square(11);  // a copy on each rank, and parts
  const double all = of_others + square(1) + square(2) + square(3) + square(4);
  const auto root_of_norm = [&](double norm) {
    TraceBuilder reference, candidate;
    reference.axes("").run_id("reference").tensor(gradient(10, {}, "head.weight"));
    reference.tensor(gradient(11, {}, "split.weight"));
    candidate.axes("ep=4").run_id("candidate").tensor(gradient(10, {}, "head.weight"));
    TensorSpec part = gradient(11, {}, "split.weight");
    constexpr std::int64_t kRowsOfRank = kScored / kRanks;
    part.shape = {kRowsOfRank, kClasses};
    part.values = [whole = gradient(11, {}, "").values](std::int32_t rank, std::int64_t i) {
      return whole(rank, rank * kRowsOfRank * static_cast<std::int64_t>(kClasses) + i);
    };
    candidate.tensor(part);
    for (std::int32_t rank = 0; rank < kRanks; ++rank) {
      const auto seed = static_cast<std::uint32_t>(1 + rank);
      reference.tensor(gradient(seed, {}, fmt::format("mix.experts.{}.up.w", rank)));
      candidate.tensor(gradient(seed, {rank}, "mix.experts.0.up.w"));  // each numbers its experts from 0
    }
    const auto norm_of_all = [](double value) { return [value](std::int32_t, std::int64_t) { return value; }; };
    reference.tensor("grad_norm", Kind::kScalar, {}, norm_of_all(std::sqrt(all)));
    candidate.tensor("grad_norm", Kind::kScalar, {}, norm_of_all(norm));
    const std::vector<RootCause> roots = roots_between(
        reference.read(), candidate.read(),
        "parallelism: {experts: {axis: ep, layers: mix.experts}}\nsplit.weight:\n  main_grad: {ep_dim: 0}\n",
        allowing(1e-5));
    REQUIRE(!roots.empty());
    return roots[0];
  };
  check_cause(root_of_norm(std::sqrt(all - square(3))), Cause::kOtherNorm,
              "the norm lacks the gradients that rank 2 of ep alone holds (mix.experts.2)");
  check_cause(root_of_norm(std::sqrt(of_others + square(1))), Cause::kOtherNorm,
              "the norm lacks the gradients that one rank of ep alone holds, but for those of rank 0 (mix.experts.1, "
              "mix.experts.2, mix.experts.3)");
  // Of two ranks, and half of one: no rule leaves these out.
  CHECK_FALSE(root_of_norm(std::sqrt(all - square(2) - square(3))).diagnosis);
  CHECK_FALSE(root_of_norm(std::sqrt(all - square(3) / 2)).diagnosis);
}

TEST_SUITE_END();
