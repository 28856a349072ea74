#include "tolerance/estimate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <memory>

#include "align/shard_mapping.h"
#include "base/error.h"
#include "judge/judge.h"
#include "judge/match.h"
#include "support/differences.h"
#include "support/mesh_trace.h"

namespace {

using namespace ttrace;

constexpr double kFloat32Epsilon = 1.0 / (1 << 23);

// Owns the reference's tensors, with which all runs are compared.
class Model {
 public:
  const LogicalTensor* tensor(Kind kind, const std::string& name, std::int32_t microbatch = kNoMicrobatch,
                              Dtype dtype = Dtype::kFloat32, Shape shape = {16}) {
    return changeable(kind, name, microbatch, dtype, std::move(shape));
  }
  LogicalTensor* changeable(Kind kind, const std::string& name, std::int32_t microbatch = kNoMicrobatch,
                            Dtype dtype = Dtype::kFloat32, Shape shape = {16}) {
    LogicalTensor& one = tensors_.emplace_back();
    one.id = test::tensor_id(kind, name, microbatch);
    one.dtype = dtype;
    one.shape = std::move(shape);
    return &one;
  }

 private:
  std::deque<LogicalTensor> tensors_;
};

Difference moved_by(double rel_err) {
  Difference difference;
  difference.elements = 8;
  difference.differing = rel_err > 0 ? 1 : 0;
  difference.reference_square = difference.candidate_square = 8;
  difference.difference_square = 8 * rel_err * rel_err;
  difference.max_abs = 2 * rel_err;
  return difference;
}

// Builds a run in which the tensors respond by `responses`, in order.
RunDifferences run_of(const std::string& what, const std::vector<const LogicalTensor*>& tensors,
                      const std::vector<double>& responses) {
  RunDifferences run;
  run.what = what;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    run.pairs.push_back({tensors[i], tensors[i]});
    run.differences.push_back(moved_by(responses[i]));
  }
  return run;
}

std::vector<RunDifferences> runs_of(const std::vector<const LogicalTensor*>& tensors,
                                    const std::vector<std::vector<double>>& responses) {
  std::vector<RunDifferences> runs;
  for (const auto& one : responses) {
    runs.push_back(run_of("perturbed run 'p" + std::to_string(runs.size()) + "'", tensors, one));
  }
  return runs;
}

std::string refusal_of(const std::vector<RunDifferences>& runs, const RunDifferences* rerun = nullptr) {
  try {
    estimate(runs, rerun, {});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("tolerance");

TEST_CASE("what is allowed is the margin times the largest response of any run and micro-batch") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kOutput, "mlp", 1)};
  const ToleranceFile file =
      estimate(runs_of(tensors, {{0.125, 0.25}, {0.5, 0.0625}, {0.25, 0.25}}), nullptr, {.margin = 1.5});
  REQUIRE(file.tensors.size() == 1);
  const Tolerance& tolerance = file.tensors.at({Kind::kOutput, "mlp"});
  CHECK(tolerance.samples == std::vector<double>{0.25, 0.5, 0.25});
  CHECK_FALSE(tolerance.rerun.has_value());
  CHECK(tolerance.estimate == 0.5);
  CHECK(tolerance.floor == doctest::Approx(kFloat32Epsilon * std::sqrt(4.0 / 6)));  // of sums of 16 terms
  CHECK(tolerance.allowed == 0.75);
  CHECK(file.margin == 1.5);
  CHECK(file.compute_dtype == "float32");
  CHECK(file.epsilon == kFloat32Epsilon);
  CHECK(file.notes.empty());
}

TEST_CASE("what errors grow to in light iterations is theirs alone") {
  Model model;
  LogicalTensor *first = model.changeable(Kind::kMainGrad, "fc.weight"),
                *later = model.changeable(Kind::kMainGrad, "fc.weight"),
                *alone = model.changeable(Kind::kMainGrad, "late.weight");
  later->id.iteration = alone->id.iteration = 1;
  later->light = alone->light = true;
  const std::vector<const LogicalTensor*> tensors = {first, later, alone};
  const std::vector<RunDifferences> runs = runs_of(tensors, {{0.01, 0.2, 0.1}, {0.02, 0.1, 0.1}, {0.01, 0.1, 0.2}});
  const RunDifferences rerun = run_of("rerun", tensors, {0, 0.3, 0});
  const ToleranceFile file = estimate(runs, &rerun, {});
  const Tolerance& both = file.tensors.at({Kind::kMainGrad, "fc.weight"});
  CHECK(both.samples == std::vector<double>{0.01, 0.02, 0.01});
  CHECK(both.allowed == doctest::Approx(0.06));
  CHECK(both.light == doctest::Approx(0.3));
  // What only light iterations have is held to what was measured there.
  const Tolerance& late = file.tensors.at({Kind::kMainGrad, "late.weight"});
  CHECK(late.estimate == doctest::Approx(0.2));
  CHECK_FALSE(late.light.has_value());

  CHECK(judge({first, first}, moved_by(0.1), &file).verdict == Verdict::kFail);
  const Finding finding = judge({later, later}, moved_by(0.1), &file);
  CHECK(finding.allowed == doctest::Approx(kLightSlack * 0.9));
  CHECK_FALSE(is_wrong(finding));
}

TEST_CASE("a loss in fp64 that the program computes in fp32 may be off by fp32's rounding, which no run of it shows") {
  const auto allowed_of = [](double value) {
    const auto entry = std::make_shared<Entry>();
    entry->dtype = Dtype::kFloat64;
    entry->bytes = sizeof value;
    const auto kept = std::make_shared<double>(value);
    Model model;
    LogicalTensor* loss = model.changeable(Kind::kScalar, "loss", 0, Dtype::kFloat64, {});
    loss->pieces = [entry, kept] {
      Piece piece;
      piece.entry = entry.get();
      piece.data = reinterpret_cast<const std::byte*>(kept.get());
      return std::vector<Piece>{piece};
    };
    const std::vector<const LogicalTensor*> tensors = {loss, model.tensor(Kind::kOutput, "fc", 0, Dtype::kFloat64)};
    EstimateOptions options;
    options.compute_dtype = Dtype::kFloat64;
    return estimate(runs_of(tensors, {{0, 1e-15}, {0, 1e-15}, {0, 1e-15}}), nullptr, options)
        .tensors.at({Kind::kScalar, "loss"})
        .allowed;
  };
  CHECK(allowed_of(3.5193617343902588) == doctest::Approx(3 * kFloat32Epsilon));
  CHECK(allowed_of(3.5193617343902597) < 1e-14);
  CHECK(allowed_of(3.5) < 1e-14);  // so short that any dtype holds it
}

TEST_CASE("what is zero in the reference, and noise in its runs, says nothing of other micro-batches of its name") {
  Model model;
  const LogicalTensor *value = model.tensor(Kind::kGradOutput, "mlp", 0),
                      *cancels = model.tensor(Kind::kGradOutput, "mlp", 1);
  std::vector<RunDifferences> runs = runs_of({value, cancels}, {{0.01, 0}, {0.02, 0}, {0.01, 0}});
  const auto of_zero = [](double norm) {
    Difference difference = moved_by(1);
    difference.reference_square = 0;
    difference.candidate_square = difference.difference_square = norm * norm;
    return difference;
  };
  for (RunDifferences& run : runs) run.differences[1] = of_zero(1e-7);
  runs[2].differences[1] = of_zero(2e-7);
  const ToleranceFile file = estimate(runs, nullptr, {});
  const Tolerance& tolerance = file.tensors.at({Kind::kGradOutput, "mlp"});
  CHECK(tolerance.allowed == doctest::Approx(0.06));
  CHECK(tolerance.of_zero == doctest::Approx(2e-7));

  CHECK(judge({value, value}, moved_by(0.1), &file).verdict == Verdict::kFail);
  const Finding noise = judge({cancels, cancels}, of_zero(4e-6), &file);
  CHECK(noise.verdict == Verdict::kUntrusted);
  CHECK(noise.reason == Reason::kNoise);
  CHECK(judge({cancels, cancels}, of_zero(1e-4), &file).verdict == Verdict::kFail);
}

TEST_CASE("an update in a light iteration may be off by rounding steps of its parameter, which no run need have met") {
  Model model;
  LogicalTensor *weight = model.changeable(Kind::kParam, "fc.weight"),
                *update = model.changeable(Kind::kParamDelta, "fc.weight"),
                *first = model.changeable(Kind::kParamDelta, "fc.weight");
  update->id.iteration = 1;
  update->light = true;
  std::vector<RunDifferences> runs = runs_of({weight, first, update}, {{0, 0.1, 0}, {0, 0.1, 0}, {0, 0.1, 0}});
  for (RunDifferences& run : runs) run.differences[2].reference_square = 8e-6;  // of the parameter's norm a thousandth
  const Tolerance tolerance = estimate(runs, nullptr, {}).tensors.at({Kind::kParamDelta, "fc.weight"});
  CHECK(tolerance.light == doctest::Approx(1000 * kFloat32Epsilon));
}

// A tensor of 32 rows of 32 elements; `scale` is signed, the others relative as in Difference.
Difference moved_along(double rel_err, double scale, double row, double element) {
  Difference difference;
  difference.elements = 1024;
  difference.differing = 1024;
  difference.reference_square = difference.candidate_square = 1024;
  difference.difference_square = 1024 * rel_err * rel_err;
  difference.along = 1024 * scale;
  difference.reference_max_abs = 4;
  difference.rows = 32;
  difference.worst_row = 0;
  difference.row_square = 32 * row * row;
  difference.max_abs = element;
  return difference;
}

TEST_CASE("the statistics beside the norm come from the responses of the same tensor in all layers") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "layers.0.mlp", 0, Dtype::kFloat32, {32, 32}),
                               model.tensor(Kind::kOutput, "layers.1.mlp", 0, Dtype::kFloat32, {32, 32}),
                               model.tensor(Kind::kOutput, "head", 0, Dtype::kFloat32, {8})};
  std::vector<RunDifferences> runs = runs_of(tensors, {{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}});
  for (std::size_t r = 0; r < 3; ++r) {
    const double sign = r == 1 ? -1 : 1;
    runs[r].differences[0] = moved_along(0.01, sign * 3e-4, 0.02, 0.05);
    runs[r].differences[1] = moved_along(0.01, sign * 4e-4, r == 2 ? 0.04 : 0.03, 0.06);
  }
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.at({Kind::kOutput, "head"}).statistics.empty());
  const auto& statistics = file.tensors.at({Kind::kOutput, "layers.0.mlp"}).statistics;
  const StatisticTolerance& scale = statistics.at(Statistic::kScale);
  CHECK(scale.samples == std::vector<double>{3e-4, -3e-4, 3e-4});
  CHECK(scale.responses == 6);
  CHECK(scale.estimate == doctest::Approx(std::sqrt((9e-8 + 16e-8) / 2)));
  const double rounding = kFloat32Epsilon * std::sqrt(32.0 / 12);  // of sums of up to 32 terms
  CHECK(scale.floor == doctest::Approx(4 * rounding / 32));
  CHECK(scale.allowed == doctest::Approx(43.412353 * scale.estimate));
  const StatisticTolerance& row = statistics.at(Statistic::kRow);
  CHECK(row.samples[0] == doctest::Approx(0.02));
  CHECK(row.estimate == doctest::Approx(0.04));
  CHECK(row.floor == doctest::Approx(4 * rounding));
  CHECK(row.allowed == doctest::Approx(0.24));
  CHECK(statistics.at(Statistic::kElement).allowed == doctest::Approx(0.36));
}

TEST_CASE("a run in which a step did not jump says nothing of the scale of those that did") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kParamDelta, "0.weight", 0, Dtype::kFloat32, {32, 32}),
                               model.tensor(Kind::kOutput, "mover", 0)};
  std::vector<RunDifferences> runs = runs_of(tensors, {{0, 0.25}, {0, 0.25}, {0, 0.25}});
  runs[1].differences[0] = moved_along(0.02, 3e-4, 0.03, 0.05);
  const ToleranceFile file = estimate(runs, nullptr, {});
  const StatisticTolerance& scale = file.tensors.at({Kind::kParamDelta, "0.weight"}).statistics.at(Statistic::kScale);
  CHECK(scale.estimate == doctest::Approx(3e-4));
  CHECK(scale.responses == 3);
}

TEST_CASE("runs that respond alike make an estimate that is no larger than their response") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kParamAfter, "layers.0.bias", 0, Dtype::kFloat32, {32, 32})};
  const double response = 0x1.c44581e5d3ddap-23;  // whose root mean square, of three, is rounded up
  std::vector<RunDifferences> runs = runs_of(tensors, {{0.01}, {0.01}, {0.01}});
  for (RunDifferences& run : runs) run.differences[0] = moved_along(0.01, response, 0.02, 0.05);
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.begin()->second.statistics.at(Statistic::kScale).estimate ==
        std::fabs(file.tensors.begin()->second.statistics.at(Statistic::kScale).samples[0]));
}

TEST_CASE("what is allowed of the scale grows with the rest of the error, and not with the scale itself") {
  Tolerance tolerance;
  tolerance.estimate = 0.01;
  tolerance.statistics[Statistic::kScale].allowed = 0.002;
  const auto allowed = [&](double rel_err, double scale) {
    return measure_statistics(moved_along(rel_err, scale, 0, 0), tolerance).at(0).allowed;
  };
  CHECK(allowed(0.01, 0.001) == 0.002);
  CHECK(allowed(0.005, 0) == 0.002);
  CHECK(allowed(0.02, 0) == doctest::Approx(0.004));
  CHECK(allowed(std::hypot(0.02, 0.5), -0.5) == doctest::Approx(0.004));
}

TEST_CASE("more responses allow less of a scale, and few almost anything") {
  CHECK(factor_of(Statistic::kScale, 3, 3) == doctest::Approx(604.165).epsilon(1e-5));
  CHECK(factor_of(Statistic::kScale, 48, 3) == doctest::Approx(6.91291).epsilon(1e-5));
  CHECK(factor_of(Statistic::kScale, 1'000'000, 3) == factor_of(Statistic::kScale, 100'000, 3));
  CHECK(factor_of(Statistic::kScale, 1'000'000, 3) == doctest::Approx(5.7307).epsilon(1e-4));  // of a normal variable
  CHECK(factor_of(Statistic::kRow, 3, 2.5) == 5);
}

TEST_CASE("tensors of zeros and responses without bound have tolerances, too: none may be left out of a file") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "zero", 0, Dtype::kFloat32, {32, 32}),
                               model.tensor(Kind::kOutput, "nan", 0, Dtype::kFloat32, {32, 32}),
                               model.tensor(Kind::kOutput, "mlp", 0)};
  std::vector<RunDifferences> runs = runs_of(tensors, {{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}});
  for (RunDifferences& run : runs) {
    run.differences[0] = Difference();
    run.differences[0].elements = 1024;
    run.differences[1] = moved_along(0.01, std::numeric_limits<double>::infinity(), 0.02, 0.05);
  }
  const ToleranceFile file = estimate(runs, nullptr, {});
  const auto& zero = file.tensors.at({Kind::kOutput, "zero"}).statistics;
  REQUIRE(zero.size() == 3);
  CHECK(zero.at(Statistic::kRow).responses == 3);
  CHECK(zero.at(Statistic::kRow).allowed == doctest::Approx(6 * kFloat32Epsilon * std::sqrt(32.0 / 12)));
  CHECK(file.tensors.at({Kind::kOutput, "nan"}).statistics.at(Statistic::kScale).estimate == 1);
}

TEST_CASE("what the reference's own sums are off by, a gradient and its step may be off by") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0),
                               model.tensor(Kind::kMainGrad, "norm.bias", kNoMicrobatch, Dtype::kFloat32, {1024}),
                               model.tensor(Kind::kMainGrad, "fc.bias", kNoMicrobatch, Dtype::kFloat32, {1024})};
  std::vector<RunDifferences> runs = runs_of(tensors, {{0.01, 0, 0}, {0.01, 0, 0}, {0.01, 0, 0}});
  for (RunDifferences& run : runs) {
    for (std::size_t i : {1U, 2U}) run.differences[i] = moved_along(0.01, 1e-5, 0, 0.05);
  }
  const ToleranceFile file = estimate(runs, nullptr, {}, {{{Kind::kMainGrad, "norm.bias"}, {0.03, 0.01, 0.2}}});
  const Tolerance& own = file.tensors.at({Kind::kMainGrad, "norm.bias"});
  CHECK(own.floor == 0.03);
  CHECK(own.allowed == doctest::Approx(0.09));
  CHECK(own.statistics.at(Statistic::kScale).allowed == doctest::Approx(0.03));
  CHECK(own.statistics.at(Statistic::kElement).allowed == doctest::Approx(0.6));
  const Tolerance& other = file.tensors.at({Kind::kMainGrad, "fc.bias"});
  CHECK(other.allowed == doctest::Approx(0.03));
  CHECK(other.statistics.at(Statistic::kElement).allowed == doctest::Approx(0.3));
}

TEST_CASE("a rerun that differs more than the perturbed runs decides, and is mentioned") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kMainGrad, "w")};
  const RunDifferences rerun = run_of("rerun", tensors, {0, 0.3125});
  const ToleranceFile file = estimate(runs_of(tensors, {{0.25, 0.25}, {0.25, 0.25}, {0.25, 0.25}}), &rerun, {});
  CHECK(file.tensors.at({Kind::kOutput, "mlp"}).rerun == 0);
  CHECK(file.tensors.at({Kind::kOutput, "mlp"}).estimate == 0.25);
  CHECK(file.tensors.at({Kind::kMainGrad, "w"}).rerun == 0.3125);
  CHECK(file.tensors.at({Kind::kMainGrad, "w"}).estimate == 0.3125);
  CHECK(file.tensors.at({Kind::kMainGrad, "w"}).allowed == 0.9375);
  CHECK(file.notes == std::vector<std::string>{
                          "the reference is not reproducible: 1 of 2 tensors differ in the rerun, w main_grad most, "
                          "by 0.312"});
}

TEST_CASE("a tensor that no perturbation reaches may differ by what two roundings in the compute dtype do") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kMainGrad, "w")};
  const ToleranceFile file =
      estimate(runs_of(tensors, {{0.25, 0}, {0.25, 0}, {0.25, 0}}), nullptr, {.compute_dtype = Dtype::kBFloat16});
  const Tolerance& still = file.tensors.at({Kind::kMainGrad, "w"});
  CHECK(still.estimate == 0);
  CHECK(still.floor == doctest::Approx(1.0 / 128 / std::sqrt(6)));
  CHECK(still.allowed == doctest::Approx(3.0 / 128 / std::sqrt(6)));
  CHECK(file.epsilon == 1.0 / 128);
}

TEST_CASE("a margin that is less leaves each element the rounding step that it may be off by") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kMainGrad, "w")};
  const ToleranceFile file = estimate(runs_of(tensors, {{0.25, 0}, {0.25, 0}, {0.25, 0}}), nullptr,
                                      {.margin = 1.25, .compute_dtype = Dtype::kBFloat16});
  CHECK(file.tensors.at({Kind::kMainGrad, "w"}).allowed == doctest::Approx(1.0 / 128));
}

TEST_CASE("in fp32 a tensor that no perturbation reaches may differ by what adding up its longest sums does") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0, Dtype::kFloat32, {4096, 2}),
                               model.tensor(Kind::kMainGrad, "w")};
  const ToleranceFile file = estimate(runs_of(tensors, {{0.25, 0}, {0.25, 0}, {0.25, 0}}), nullptr, {});
  CHECK(file.tensors.at({Kind::kMainGrad, "w"}).floor == doctest::Approx(kFloat32Epsilon * std::sqrt(12.0 / 6)));
}

TEST_CASE("an initial parameter may differ by a rounding step of the dtype it is stored in, not of bf16") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kParam, "w"),
                               model.tensor(Kind::kParam, "b", kNoMicrobatch, Dtype::kBFloat16)};
  const ToleranceFile file = estimate(runs_of(tensors, {{0.25, 0, 0}, {0.25, 0, 0}, {0.25, 0, 0}}), nullptr,
                                      {.compute_dtype = Dtype::kBFloat16});
  CHECK(file.tensors.at({Kind::kParam, "w"}).floor == kFloat32Epsilon);
  CHECK(file.tensors.at({Kind::kParam, "b"}).floor == 1.0 / 128);
}

TEST_CASE("integers get no tolerance") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0),
                               model.tensor(Kind::kScalar, "tokens", 0, Dtype::kInt64)};
  const ToleranceFile file = estimate(runs_of(tensors, {{0.25, 0}, {0.25, 0}, {0.25, 0}}), nullptr, {});
  CHECK(file.tensors.size() == 1);
  CHECK(file.tensors.contains({Kind::kOutput, "mlp"}));
}

TEST_CASE("a response without bound is 1, which no tensor is trusted by") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "zero", 0), model.tensor(Kind::kOutput, "nan", 0),
                               model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kOutput, "norm", 0)};
  std::vector<RunDifferences> runs = runs_of(tensors, std::vector(3, std::vector<double>(4, 0.25)));
  runs[1].differences[0].reference_square = 0;
  for (RunDifferences& run : runs) run.differences[1].reference_inf = 1;
  runs[2].differences[1].nonfinite_mismatch = 1;
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.at({Kind::kOutput, "zero"}).samples == std::vector<double>{0.25, 1, 0.25});
  CHECK(file.tensors.at({Kind::kOutput, "nan"}).samples == std::vector<double>{0.25, 0.25, 1});
  CHECK(file.tensors.at({Kind::kOutput, "nan"}).allowed == 3);
}

namespace {

// Builds steps of an optimizer that moves every element by 1, as one rank's tensor on each side.
struct Steps {
  Steps(Kind kind, const std::string& name, std::size_t elements) {
    reference = shards.tensor(Dtype::kFloat32, {static_cast<std::int64_t>(elements)});
    reference.id = test::tensor_id(kind, name);
    candidate = flipped = reference;
    std::vector<float> steps(elements, 1);
    shards.add(reference, test::bytes_of(steps), {.parts = {1}});
    shards.add(candidate, test::bytes_of(steps), {.parts = {1}});
    steps[elements / 2] = -1;
    shards.add(flipped, test::bytes_of(steps), {.parts = {1}});
  }

  Finding judge_flipped(const ToleranceFile& file) const {
    return judge({&reference, &flipped}, test::difference(reference, flipped), &file);
  }

  test::Shards shards;
  LogicalTensor reference, candidate, flipped;
};

// The sign of one element of `large` flips in the second of three runs; nothing else moves but `mover`.
ToleranceFile estimate_flip(const Steps& large, const Steps& other) {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mover", 0)};
  std::vector<RunDifferences> runs = runs_of(tensors, {{0.25}, {0.25}, {0.25}});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const LogicalTensor& side = i == 1 ? large.flipped : large.candidate;
    runs[i].pairs.push_back({&large.reference, &side});
    runs[i].differences.push_back(test::difference(large.reference, side));
    runs[i].pairs.push_back({&other.reference, &other.candidate});
    runs[i].differences.push_back(test::difference(other.reference, other.candidate));
  }
  return estimate(runs, nullptr, {});
}

}  // namespace

TEST_CASE("one flipped step is allowed in any tensor of a kind in which the perturbed runs saw one") {
  for (const Kind kind : {Kind::kParamDelta, Kind::kParamAfter}) {
    const Steps large(kind, "large", 1024), small(kind, "small", 64), tiny(kind, "tiny", 4);
    const ToleranceFile file = estimate_flip(large, small);
    CHECK(file.tensors.at({kind, "small"}).estimate == 0);
    CHECK(file.tensors.at({kind, "small"}).floor == 0.25);      // 2 / sqrt(64)
    CHECK(file.tensors.at({kind, "large"}).floor == 2.0 / 32);  // as measured
    CHECK(small.judge_flipped(file).verdict == Verdict::kPass);
    CHECK(large.judge_flipped(file).verdict == Verdict::kPass);
    // One of four elements may jump by as much as the tensor itself: then nothing is trusted, and nothing fails.
    CHECK(tiny.judge_flipped(estimate_flip(large, tiny)).reason == Reason::kNoise);
  }
}

TEST_CASE("a parameter whose whole gradient is rounding says nothing of how far others jump") {
  for (const double of_gradient : {0.01, 0.5}) {
    const Steps noisy(Kind::kParamDelta, "key.bias", 1024), small(Kind::kParamDelta, "small", 64);
    Model model;
    const std::vector tensors = {model.tensor(Kind::kOutput, "mover", 0), model.tensor(Kind::kMainGrad, "small"),
                                 model.tensor(Kind::kMainGrad, "key.bias")};
    std::vector<RunDifferences> runs = runs_of(tensors, std::vector(3, std::vector{0.25, 0.01, of_gradient}));
    for (RunDifferences& run : runs) {
      run.pairs.push_back({&noisy.reference, &noisy.flipped});
      run.differences.push_back(test::difference(noisy.reference, noisy.flipped));
      run.pairs.push_back({&small.reference, &small.candidate});
      run.differences.push_back(test::difference(small.reference, small.candidate));
    }
    const ToleranceFile file = estimate(runs, nullptr, {});
    const Verdict flipped = small.judge_flipped(file).verdict;
    CHECK(flipped == (of_gradient < 0.1 ? Verdict::kPass : Verdict::kFail));
    CHECK(noisy.judge_flipped(file).verdict == Verdict::kPass);  // as its own runs did
  }
}

TEST_CASE("a step that jumps in some runs may jump in any layer; one that always moves is held to its own runs") {
  const auto largest_of = [](Kind kind, const std::string& name, const std::vector<std::vector<double>>& responses) {
    Model model;
    const std::vector tensors = {model.tensor(Kind::kOutput, "mover", 0), model.tensor(kind, "0." + name),
                                 model.tensor(kind, "1." + name)};
    const ToleranceFile file = estimate(runs_of(tensors, responses), nullptr, {});
    return std::max(file.tensors.at({kind, "1." + name}).estimate, file.tensors.at({kind, "1." + name}).floor);
  };
  const std::vector<std::vector<double>> jumps = {{0.1, 0.02, 0}, {0.1, 0, 0}, {0.1, 0, 0}};
  const std::vector<std::vector<double>> moves = {{0.1, 0.02, 1e-6}, {0.1, 1e-6, 1e-6}, {0.1, 1e-6, 1e-6}};
  CHECK(largest_of(Kind::kParamDelta, "weight", jumps) == 0.02);
  CHECK(largest_of(Kind::kParamAfter, "weight", jumps) == 0.02);
  CHECK(largest_of(Kind::kParamDelta, "weight", moves) < 0.02);
}

TEST_CASE("a flipped sign is not allowed in kinds that no optimizer steps") {
  for (const Kind kind : {Kind::kMainGrad, Kind::kParamGrad}) {
    const Steps large(kind, "large", 1024), small(kind, "small", 64);
    CHECK_THROWS_WITH_AS(estimate_flip(large, small),
                         ("perturbed run 'p1': moves large " + std::string(name_of(kind)) +
                          " 5.24e+05 times as far as every other perturbed run; expected runs of one program: the same "
                          "seeds, data and software: collect it again")
                             .c_str(),
                         InputError);
  }
}

TEST_CASE("an element of a sketched step jumps by no more than its cell differs, and no farther than to its negative") {
  for (const auto& [cell_square, floor] : {std::pair(0.16, 0.8 / 32), std::pair(400.0, 10.0 / 32)}) {
    Model model;
    const auto step = [&](const char* name) {
      return model.tensor(Kind::kParamAfter, name, kNoMicrobatch, Dtype::kFloat32, {1024});
    };
    const std::vector tensors = {model.tensor(Kind::kOutput, "mover", 0), step("sketched"), step("other")};
    std::vector<RunDifferences> runs = runs_of(tensors, {{0.25, 0.01, 0}, {0.25, 0.01, 0}, {0.25, 0.01, 0}});
    for (RunDifferences& run : runs) {
      SketchMeasure sketch;
      sketch.cells = 1;
      sketch.cell_elements = 8;
      sketch.cell_square = cell_square;
      sketch.cell_widening = 2;
      run.differences[1].sketch = sketch;
      run.differences[1].reference_max_abs = 5;  // of a root mean square of 1
    }
    const ToleranceFile file = estimate(runs, nullptr, {});
    CHECK(file.tensors.at({Kind::kParamAfter, "other"}).floor == doctest::Approx(floor));
  }
}

TEST_CASE("an element of a sketched parameter moves no farther than its update can turn") {
  Model model;
  const auto step = [&](Kind kind, const char* name) {
    return model.tensor(kind, name, kNoMicrobatch, Dtype::kFloat32, {1024});
  };
  const std::vector tensors = {model.tensor(Kind::kOutput, "mover", 0), step(Kind::kParamDelta, "sketched"),
                               step(Kind::kParamAfter, "sketched"), step(Kind::kParamAfter, "other")};
  std::vector<RunDifferences> runs = runs_of(tensors, {{0.25, 0, 0.01, 0}, {0.25, 0, 0.01, 0}, {0.25, 0, 0.01, 0}});
  for (RunDifferences& run : runs) {
    run.differences[1].reference_max_abs = 0.125;
    SketchMeasure sketch;
    sketch.cells = 1;
    sketch.cell_elements = 1024;
    sketch.cell_square = 400;  // of all elements of the cell together
    sketch.cell_widening = 2;
    run.differences[2].sketch = sketch;
    run.differences[2].reference_max_abs = 5;
  }
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.at({Kind::kParamAfter, "other"}).floor == doctest::Approx(0.25 / 32));
}

TEST_CASE("a jump of one kind of step says nothing about the other kind") {
  const Steps large(Kind::kParamDelta, "large", 1024), small(Kind::kParamAfter, "small", 64);
  const ToleranceFile file = estimate_flip(large, small);
  CHECK(small.judge_flipped(file).reason == Reason::kExceedsTolerance);
}

TEST_CASE("a perturbed run that answers more than the others is no run of the program, and is named") {
  Model model;
  std::vector<const LogicalTensor*> tensors;
  for (const char* name : {"a", "b", "c"}) tensors.push_back(model.tensor(Kind::kOutput, name, 0));
  const std::vector<double> normal(3, 0.01), twice(3, 0.02), outlier(3, 0.3);
  CHECK(refusal_of(runs_of(tensors, {normal, twice, normal})).empty());
  CHECK(refusal_of(runs_of(tensors, {normal, outlier, normal})) ==
        "perturbed run 'p1': moves a typical output 30 times as far as every other perturbed run; expected runs of one "
        "program: the same seeds, data and software: collect it again");
  CHECK(
      refusal_of(runs_of(tensors, {normal, {0.01, 0.01, 0.3}, normal})) ==
      "perturbed run 'p1': moves c output 30 times as far as every other perturbed run; expected runs of one program: "
      "the same seeds, data and software: collect it again");
  // What a later iteration begins with is what a step has left, which jumps.
  LogicalTensor* begun = model.changeable(Kind::kParam, "w");
  const std::vector<RunDifferences> jumped =
      runs_of({tensors[0], tensors[1], begun}, {normal, {0.01, 0.01, 0.3}, normal});
  CHECK(!refusal_of(jumped).empty());
  begun->id.iteration = 1;
  CHECK(refusal_of(jumped).empty());
  // Two elements of which one follows from the other may be so far off by luck; sixteen may not.
  for (const auto& [elements, times, is_luck] : {std::tuple(2, 42, true), {2, 500, false}, {16, 42, false}}) {
    std::vector<RunDifferences> runs = runs_of(tensors, {normal, {0.01, 0.01, 0.001 * times}, {0.01, 0.01, 0.001}});
    for (RunDifferences& run : runs) run.differences[2].elements = elements;
    runs[0].differences[2] = runs[2].differences[2];
    CHECK(refusal_of(runs).empty() == is_luck);
  }
  // Rounding alone is no measure of size.
  CHECK(refusal_of(runs_of(tensors, {{0, 0, 0.01}, {0, 0, 0.01}, {1e-7, 1e-7, 0.01}})).empty());
}

TEST_CASE("a run whose tokens were sent elsewhere may answer more after that, not before and not without it") {
  Model model;
  LogicalTensor* const tensors[] = {model.changeable(Kind::kOutput, "embedding", 0),
                                    model.changeable(Kind::kOutput, "router", 0, Dtype::kInt64),
                                    model.changeable(Kind::kOutput, "mlp", 0), model.changeable(Kind::kMainGrad, "w")};
  for (std::uint64_t i = 0; i < 4; ++i) tensors[i]->order = i;
  const auto refused = [&](const std::vector<double>& last) {
    const std::vector<const LogicalTensor*> all(std::begin(tensors), std::end(tensors));
    return refusal_of(runs_of(all, {{1e-3, 0, 1e-3, 1e-3}, {1e-3, 0, 1e-3, 1e-3}, last}));
  };
  CHECK(refused({1e-3, 0.5, 0.1, 0.1}).empty());
  CHECK_FALSE(refused({1e-3, 0, 0.1, 0.1}).empty());   // nobody was sent elsewhere
  CHECK_FALSE(refused({0.1, 0.5, 0.1, 0.1}).empty());  // it was another before
  tensors[1]->order = 0;
  tensors[0]->order = 1;
  CHECK_FALSE(refused({1e-3, 0.5, 0.1, 0.1}).empty());  // other data
}

TEST_CASE("behind a step of noise that moves the other runs, too, one may be farther by luck; not before it") {
  Model model;
  std::vector<const LogicalTensor*> tensors;
  for (const std::int32_t iteration : {0, 1}) {
    for (const char* name : {"a", "b", "c", "d"}) {
      LogicalTensor* const output = model.changeable(Kind::kOutput, name, 0);
      output->id.iteration = iteration;
      tensors.push_back(output);
    }
  }
  for (const char* name : {"w", "v", "scale"}) tensors.push_back(model.tensor(Kind::kMainGrad, name));
  tensors.push_back(model.tensor(Kind::kParamDelta, "scale"));
  struct Run {
    double before, behind, gradient = 2, step = 2;
  };
  const auto refused = [&](const Run& other, const Run& last) {
    std::vector<std::vector<double>> responses;
    for (const Run& run : {other, other, last}) {
      std::vector<double>& one = responses.emplace_back(4, run.before);
      one.insert(one.end(), 4, run.behind);
      one.insert(one.end(), {1e-3, 1e-3, run.gradient, run.step});
    }
    return !refusal_of(runs_of(tensors, responses)).empty();
  };
  CHECK_FALSE(refused({1e-3, 1e-2}, {1e-3, 0.1}));
  CHECK(refused({1e-3, 1e-2}, {0.1, 0.1}));                     // it was another before
  CHECK(refused({1e-3, 1e-3}, {1e-3, 0.1}));                    // the noise reaches nothing in the others
  CHECK(refused({1e-3, 1e-2, 1e-2, 2}, {1e-3, 0.1}));           // the others' gradient is none
  CHECK(refused({1e-3, 1e-2, 2, 1e-2}, {1e-3, 0.1, 2, 1e-2}));  // no step was made of it
}

TEST_CASE("a gradient may jump at a few elements in one run, and what is behind it moves as far") {
  struct Run {
    float loss = 1, at_one = 1, at_many = 1, behind = 1;
  };
  const auto trace_of = [](const Run& run) {
    Trace trace = test::mesh_trace("", 1);
    std::vector<float> gradient(4096, run.at_many);
    gradient[5] = run.at_one;
    test::add_tensor(trace, 0, test::tensor_id(Kind::kScalar, "loss", 0), {}, {run.loss});
    test::add_tensor(trace, 0, test::tensor_id(Kind::kGradOutput, "relu", 0), {4096}, gradient);
    test::add_tensor(trace, 0, test::tensor_id(Kind::kMainGrad, "w"), {64}, std::vector<float>(64, run.behind));
    return trace;
  };
  const auto refused = [&](const Run& last) {
    const std::vector<Trace> traces = {trace_of({}), trace_of({1, 1, 1.000001F, 1.000001F}),
                                       trace_of({1, 1, 1.000001F, 1.000001F}), trace_of(last)};
    std::vector<Alignment> aligned;
    for (const Trace& trace : traces) aligned.push_back(align(trace, Annotations{}, {}));
    std::vector<RunDifferences> runs;
    for (std::size_t i = 1; i < aligned.size(); ++i) {
      const Matching matching = match(aligned[0], aligned[i]);
      runs.push_back({"run", matching.pairs, compare(matching.pairs, {1, {}, false}), {}});
    }
    return !refusal_of(runs).empty();
  };
  CHECK_FALSE(refused({1, 0.1F, 1.000001F, 1.01F}));
  CHECK(refused({1, 1, 1.01F, 1.01F}));             // not few
  CHECK(refused({1, 1, 1.000001F, 1.01F}));         // no activation's gradient jumps
  CHECK(refused({1.01F, 0.1F, 1.000001F, 1.01F}));  // another loss is before it
}

TEST_CASE("a rerun that answers more than rounding does is refused") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0)};
  const auto runs = runs_of(tensors, {{0.01}, {0.01}, {0.01}});
  const RunDifferences near = run_of("rerun 'again'", tensors, {0.02}), far = run_of("rerun 'again'", tensors, {0.3});
  CHECK(refusal_of(runs, &near).empty());
  CHECK(
      refusal_of(runs, &far) ==
      "rerun 'again': moves a typical output 30 times as far as every perturbed run; expected runs of one program: the "
      "same seeds, data and software: collect it again");
}

TEST_CASE("a run with NaN where the reference has none is refused") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0)};
  auto runs = runs_of(tensors, {{0.01}, {0.01}, {0.01}});
  runs[2].differences[0].candidate_nan = 2;
  CHECK(refusal_of(runs) ==
        "perturbed run 'p2': mlp output, iteration 0, micro-batch 0 holds 2 NaN and 0 Inf, and none in the reference; "
        "expected a run of the same program");
}

TEST_CASE("a run that begins with other parameters is refused, one that comes to others is not") {
  Model model;
  LogicalTensor later = *model.tensor(Kind::kParam, "w");
  const std::vector first = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kParam, "w")};
  CHECK(refusal_of(runs_of(first, {{0.1, 0.1}, {0.1, 0.1}, {0.1, 0.1}})) ==
        "perturbed run 'p0': begins with other parameters than the reference: w param, iteration 0 differs by 0.1; "
        "expected a run of the same program: set its seeds, or collect the reference again where the program has "
        "changed since");
  later.id.iteration = 1;
  CHECK(refusal_of(runs_of({first[0], &later}, {{0.1, 0.1}, {0.1, 0.1}, {0.1, 0.1}})).empty());
}

TEST_CASE("runs of which most is noise give no tolerances; a step may be noise where the gradient is not") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kMainGrad, "w"),
                               model.tensor(Kind::kParamDelta, "w"), model.tensor(Kind::kParamAfter, "w")};
  const auto all = [&](double gradient, double step) {
    return runs_of(tensors, std::vector(3, std::vector<double>{0.1, gradient, step, 0.1}));
  };
  CHECK(refusal_of(all(0.1, 0.5)).empty());
  CHECK(
      refusal_of(all(0.5, 0.5)) ==
      "1 of 1 tolerances of main_grad are 1 or more: pure noise, with which nothing can be checked; expected a program "
      "that repeats itself: set its seeds, feed it the same data in the same order, without dropout");
  const RunDifferences rerun = run_of("rerun", tensors, {0, 0, 0, 0});
  CHECK(
      refusal_of(all(0.5, 0.5), &rerun) ==
      "1 of 1 tolerances of main_grad are 1 or more: in the reference they are what rounding leaves of zero, as where "
      "equal things are subtracted, and nothing can be checked with them; expected an iteration in which they are "
      "more, such as the next (collect --iterations 1)");
}

TEST_CASE("a loss may be noise where the gradients are not") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kMainGrad, "w"),
                               model.tensor(Kind::kScalar, "loss", 0, Dtype::kFloat32, {})};
  const auto all = [&](double gradient) {
    return runs_of(tensors, std::vector(3, std::vector<double>{0.1, gradient, 0.9}));
  };
  CHECK(refusal_of(all(0.1)).empty());
  CHECK_FALSE(refusal_of(all(0.5)).empty());
}

TEST_CASE("fewer than three perturbed runs are refused") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0)};
  CHECK(refusal_of(runs_of(tensors, {{0.5}, {0.5}})) ==
        "2 perturbed runs; expected 3 or more, since the largest of fewer responses is a matter of luck");
  CHECK(refusal_of({}) ==
        "0 perturbed runs; expected 3 or more, since the largest of fewer responses is a matter of luck");
}

TEST_CASE("perturbations without effect are refused, even if integers differ; one of several is noted") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0),
                               model.tensor(Kind::kScalar, "tokens", 0, Dtype::kInt64)};
  CHECK(refusal_of(runs_of(tensors, {{0, 0}, {0, 1}, {0, 0}})) ==
        "perturbed run 'p0', and all others: every floating-point tensor equals the reference's: the perturbation had "
        "no effect; expected runs collected with --perturb that reach what is recorded, or else `ttrace check -t "
        "default`");
  const auto runs = runs_of(tensors, {{0.125, 0}, {0, 1}, {0.0625, 0}});
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.at({Kind::kOutput, "mlp"}).estimate == 0.125);
  CHECK(file.notes.back() ==
        "perturbed run 'p1': every floating-point tensor equals the reference's: its perturbation was rounded away");
}

TEST_CASE("a tensor that one perturbed run lacks is refused") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kMainGrad, "w")};
  const std::string refusal = "w main_grad: measured in 2 of 3 perturbed runs; expected runs of one program";
  for (std::size_t lacking = 0; lacking < 3; ++lacking) {
    CAPTURE(lacking);
    std::vector<RunDifferences> runs = runs_of(tensors, {{0.5, 0.5}, {0.5, 0.5}, {0.5, 0.5}});
    runs[lacking].pairs.pop_back();
    runs[lacking].differences.pop_back();
    CHECK(refusal_of(runs) == refusal);
  }
}

TEST_CASE("what an optimizer's step needs in some runs alone has no tolerance") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kStepGrad, "w")};
  for (std::size_t lacking = 0; lacking < 3; ++lacking) {
    CAPTURE(lacking);
    std::vector<RunDifferences> runs = runs_of(tensors, {{0.01, 0.01}, {0.01, 0.01}, {0.01, 0.01}});
    runs[lacking].pairs.pop_back();
    runs[lacking].differences.pop_back();
    const RunDifferences rerun = run_of("rerun", tensors, {0, 0});
    const ToleranceFile file = estimate(runs, &rerun, {});
    CHECK(file.tensors.size() == 1);
    CHECK(file.tensors.contains({Kind::kOutput, "mlp"}));
  }
}

TEST_CASE("what is stored in less than it is computed in may differ by a rounding of that") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kScalar, "loss", 0, Dtype::kFloat32, {}),
                               model.tensor(Kind::kOutput, "mlp", 0)};
  const auto runs = runs_of(tensors, {{0, 1e-16}, {0, 1e-16}, {0, 1e-16}});
  const ToleranceFile file = estimate(runs, nullptr, {.compute_dtype = Dtype::kFloat64});
  CHECK(file.tensors.at({Kind::kScalar, "loss"}).floor == kFloat32Epsilon);
  CHECK(file.tensors.at({Kind::kOutput, "mlp"}).floor == doctest::Approx(kFloat32Epsilon * std::sqrt(4.0 / 6)));
}

TEST_CASE("a run whose parameters begin by a few roundings otherwise is one of the program") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0), model.tensor(Kind::kParam, "w")};
  const double rounding = 8 * kFloat32Epsilon;
  const RunDifferences rerun = run_of("rerun", tensors, {2e-5, rounding});
  const auto runs = runs_of(tensors, {{1e-6, 0}, {1e-6, 0}, {1e-6, 0}});
  CHECK(refusal_of(runs, &rerun).empty());
  CHECK(estimate(runs, &rerun, {}).tensors.at({Kind::kParam, "w"}).estimate == doctest::Approx(rounding));
  const RunDifferences equal = run_of("rerun", tensors, {2e-5, 0}), far = run_of("rerun", tensors, {0.01, rounding});
  CHECK_FALSE(refusal_of(runs, &equal).empty());
  CHECK_FALSE(refusal_of(runs, &far).empty());  // no rounding of the beginning moves so far
  const std::vector narrow = {tensors[0], model.tensor(Kind::kParam, "w", kNoMicrobatch, Dtype::kBFloat16)};
  CHECK_FALSE(refusal_of(runs_of(narrow, {{0.1, 0.1}, {0.1, 0.1}, {0.1, 0.1}})).empty());
}

TEST_CASE("a tensor that only the rerun holds is refused") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0)};
  const RunDifferences rerun = run_of("rerun", {tensors[0], model.tensor(Kind::kMainGrad, "w")}, {0, 0});
  CHECK(refusal_of(runs_of(tensors, {{0.5}, {0.5}, {0.5}}), &rerun) ==
        "w main_grad: measured in 0 of 3 perturbed runs; expected runs of one program");
}

namespace {

// Returns what a bf16 model's loss may differ by, after `runs` runs that all responded alike.
double allowed_loss(std::size_t runs, double response, Dtype stored = Dtype::kFloat32, Shape shape = {}) {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0),
                               model.tensor(Kind::kScalar, "loss", 0, stored, std::move(shape))};
  const auto measured = runs_of(tensors, std::vector<std::vector<double>>(runs, {0.25, response}));
  return estimate(measured, nullptr, {.compute_dtype = Dtype::kBFloat16}).tensors.at({Kind::kScalar, "loss"}).allowed;
}

}  // namespace

TEST_CASE("a loss is held to its own noise, not to a rounding step of bf16; fewer samples say less of it") {
  CHECK(allowed_loss(3, 1e-4) == doctest::Approx(60.397e-4));
  CHECK(allowed_loss(6, 1e-4) == doctest::Approx(13.555e-4));
  CHECK(allowed_loss(12, 1e-4) == doctest::Approx(7.2606e-4));
  CHECK(allowed_loss(20, 1e-4) == doctest::Approx(5.8537e-4));
}

TEST_CASE("a loss may always differ by a rounding step of its dtype, and its floor is never above that of bf16") {
  CHECK(allowed_loss(3, 0) == 3 * kFloat32Epsilon);
  CHECK(allowed_loss(3, 1e-3) == 3.0 / 128);
  CHECK(allowed_loss(3, 0, Dtype::kBFloat16) == 3.0 / 128);
  CHECK(allowed_loss(3, 0.25) == 0.75);
  // Not a single number.
  CHECK(allowed_loss(3, 1e-4, Dtype::kFloat32, {4}) == doctest::Approx(3.0 / 128 / std::sqrt(6)));
}

namespace {

// Returns what a float32 parameter of `elements` may differ by in its gradient, after `runs` runs that all responded
// alike.
double allowed_gradient(std::size_t runs, std::int64_t elements) {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0),
                               model.tensor(Kind::kParamGrad, "w", 0, Dtype::kFloat32, {elements})};
  const auto measured = runs_of(tensors, std::vector<std::vector<double>>(runs, {0.25, 1e-4}));
  return estimate(measured, nullptr, {}).tensors.at({Kind::kParamGrad, "w"}).allowed;
}

}  // namespace

TEST_CASE("the fewer elements and the fewer runs, the less the largest response says of a tensor") {
  CHECK(allowed_gradient(3, 1) == doctest::Approx(60.397e-4));
  CHECK(allowed_gradient(3, 2) == doctest::Approx(11.6725e-4));
  CHECK(allowed_gradient(4, 2) == doctest::Approx(8.1934e-4));
  CHECK(allowed_gradient(12, 1) == doctest::Approx(7.2606e-4));
  CHECK(allowed_gradient(20, 1) == doctest::Approx(5.8537e-4));
  CHECK(allowed_gradient(3, 6) == doctest::Approx(3.6276e-4));
  CHECK(allowed_gradient(3, 9) == doctest::Approx(3e-4));  // the margin leaves more room than luck needs
}

TEST_CASE("the responses of all layers say what one of few elements may differ by") {
  Model model;
  std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0)};
  for (int layer = 0; layer < 4; ++layer) {
    tensors.push_back(
        model.tensor(Kind::kParamGrad, "layers." + std::to_string(layer) + ".gate", 0, Dtype::kFloat32, {1}));
  }
  const std::vector<double> run = {0.25, 1e-4, 1e-4, 1e-4, 4e-4};
  const ToleranceFile file = estimate(runs_of(tensors, {run, run, run}), nullptr, {});
  const auto allowed = [&](const std::string& name) { return file.tensors.at({Kind::kParamGrad, name}).allowed; };
  const double of_group = std::sqrt((3 * 1 + 16) / 4.0) * 1e-4;  // root mean square of the 12
  CHECK(allowed("layers.0.gate") == doctest::Approx(7.2606 * of_group));
  CHECK(allowed("layers.3.gate") == doctest::Approx(7.2606 * 4e-4));  // its own are larger
}

TEST_CASE("what a re-routed token changed in a perturbed run is allowed, and counted") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "router", 0), model.tensor(Kind::kOutput, "mlp", 0)};
  auto runs = runs_of(tensors, {{0.01, 0.01}, {0.01, 0.25}, {0.01, 0.01}});
  runs[1].rerouted = {false, true};
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.at({Kind::kOutput, "mlp"}).allowed == 0.75);
  CHECK(file.notes == std::vector<std::string>{
                          "perturbed runs sent tokens near a tie to other experts: 1 of 2 tensors come after such a "
                          "token, and may differ by as much as it changed them"});
}

TEST_CASE("a small step may differ by another rounding of one element of its parameter") {
  Model model;
  const std::vector tensors = {model.tensor(Kind::kOutput, "mlp", 0),
                               model.tensor(Kind::kParamDelta, "w", kNoMicrobatch, Dtype::kFloat32, {8}),
                               model.tensor(Kind::kParamAfter, "w", kNoMicrobatch, Dtype::kFloat32, {8})};
  auto runs = runs_of(tensors, {{0.25, 0, 0}, {0.25, 0, 0}, {0.25, 0, 0}});
  for (RunDifferences& run : runs) run.differences[1].reference_square = 8e-12;  // steps of 1e-6, of parameters of 1
  const double largest = std::sqrt(2 * std::log(8));                             // of 8 normal parameters
  CHECK(estimate(runs, nullptr, {}).tensors.at({Kind::kParamDelta, "w"}).floor ==
        doctest::Approx(kFloat32Epsilon * largest / 1e-6 / std::sqrt(8)));
}

TEST_CASE("a bias that is rounding alone says nothing of the others of its group") {
  Model model;
  const LogicalTensor* before_norm = model.tensor(Kind::kMainGrad, "0.bias", kNoMicrobatch, Dtype::kFloat32, {4});
  const LogicalTensor* last = model.tensor(Kind::kMainGrad, "3.bias", kNoMicrobatch, Dtype::kFloat32, {4});
  const LogicalTensor* input = model.tensor(Kind::kInput, "(model)", 0);
  const LogicalTensor* output = model.tensor(Kind::kOutput, "(model)", 0);
  const std::vector<RunDifferences> runs(3, run_of("run", {before_norm, last, input, output}, {1.5, 1e-7, 1e-7, 1e-7}));
  const ToleranceFile file = estimate(runs, nullptr, {});
  CHECK(file.tensors.at({Kind::kMainGrad, "0.bias"}).allowed >= 1);
  CHECK(file.tensors.at({Kind::kMainGrad, "3.bias"}).allowed < 1e-5);
}
