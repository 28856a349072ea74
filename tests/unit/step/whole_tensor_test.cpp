#include "step/whole_tensor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "numeric/shape.h"
#include "step/judge_steps.h"
#include "step/options.h"
#include "step/step.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("step");

namespace {

const std::string kOptax = "optax.adafactor", kTorch = "torch.optim.Adafactor";

float chance(std::int64_t i, int seed) {
  return static_cast<float>(std::sin(static_cast<double>(i) * 12.9898 + seed * 78.233) *
                            std::exp(-static_cast<double>(i % 5)));
}

// Holds what Adafactor computes with, which may be other than what it says.
struct Numbers {
  double lr = 1e-2, decay_rate = 0.8, eps = 1e-30, threshold = 1, least_scale = 1e-3, momentum = 0, decay = 0, clip = 1;
};

// A run of Adafactor in fp32 with one parameter, as optax's source has it, or PyTorch's.
struct FactoredRun {
  bool is_torch = false;
  Shape shape = {24, 16};
  std::optional<std::pair<std::size_t, std::size_t>> dims = {{0, 1}};  // that rows and columns are means over
  Numbers says{}, computes{};
  int steps_before = 0, iterations = 3, ranks = 1;
  Dtype dtype = Dtype::kFloat32;
  std::function<float(int, const Shape&, float, float)> becomes = [](int, const Shape&, float, float after) {
    return after;
  };
  std::function<void(OptimizerStep&)> states = [](OptimizerStep&) {};

  Trace trace() const {
    Trace made = mesh_trace("tp=" + std::to_string(ranks), ranks);
    const auto elements = static_cast<std::size_t>(element_count(shape));
    std::vector<float> value(elements), first(elements, 0), second(elements, 0);
    std::map<Shape, float> rows, columns;
    for (std::size_t i = 0; i < elements; ++i) value[i] = chance(static_cast<std::int64_t>(i), 1) / 8;
    for (int step = 1; step <= steps_before + iterations; ++step) {
      std::vector<float> gradient(elements), delta(elements), after(elements);
      for (std::size_t i = 0; i < elements; ++i) gradient[i] = chance(static_cast<std::int64_t>(i), step + 1) / 50;
      const std::vector<float> moment = first, estimate = estimate_of(rows, columns, second);
      const std::vector<float> update = updates(step, value, gradient, first, second, rows, columns);
      for (std::size_t i = 0; i < elements; ++i) {
        after[i] = value[i] + update[i];
        after[i] = becomes(step, index_at(static_cast<std::int64_t>(i), shape), value[i], after[i]);
        delta[i] = after[i] - value[i];
      }
      const int iteration = step - 1 - steps_before;
      if (iteration >= 0) record(made, step, iteration, value, gradient, delta, after, moment, estimate);
      value = after;
    }
    return made;
  }

 private:
  static Shape without(Shape index, std::size_t dim) {
    index.erase(index.begin() + static_cast<std::ptrdiff_t>(dim));
    return index;
  }

  double floor() const { return is_torch ? 0x1p-23 : 0; }

  static float rms(const std::vector<float>& values) {
    double sum = 0;  // kernels add up in parts
    for (const float one : values) sum += one * one;
    return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
  }

  // The second moment, as it is estimated of its factors.
  std::vector<float> estimate_of(const std::map<Shape, float>& rows, const std::map<Shape, float>& columns,
                                 std::vector<float> whole) const {
    if (!dims || rows.empty()) return whole;
    std::map<Shape, float> mean;
    const std::size_t left = dims->second - (dims->second > dims->first ? 1 : 0);
    for (const auto& [index, row] : rows) {
      mean[without(index, left)] += row / static_cast<float>(shape[dims->second]);
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const Shape index = index_at(static_cast<std::int64_t>(i), shape);
      const Shape row = without(index, dims->first), column = without(index, dims->second);
      whole[i] = rows.at(row) / std::max(mean.at(without(row, left)), static_cast<float>(floor())) * columns.at(column);
    }
    return whole;
  }

  std::vector<float> updates(int step, const std::vector<float>& value, const std::vector<float>& given,
                             std::vector<float>& first, std::vector<float>& second, std::map<Shape, float>& rows,
                             std::map<Shape, float>& columns) const {
    const Numbers& c = computes;
    const auto beta2 = static_cast<float>(1 - std::pow(step, -c.decay_rate));
    std::map<Shape, float> new_rows, new_columns;
    std::vector<float> update(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
      const float g = static_cast<float>(c.clip) * given[i], square = g * g + static_cast<float>(is_torch ? 0 : c.eps);
      update[i] = g;
      if (dims) {
        const Shape index = index_at(static_cast<std::int64_t>(i), shape);
        new_rows[without(index, dims->first)] += square / static_cast<float>(shape[dims->first]);
        new_columns[without(index, dims->second)] += square / static_cast<float>(shape[dims->second]);
      } else {
        second[i] = beta2 * second[i] + (1 - beta2) * square;
      }
    }
    for (const auto& [index, row] : new_rows) rows[index] = beta2 * rows[index] + (1 - beta2) * row;
    for (const auto& [index, column] : new_columns) columns[index] = beta2 * columns[index] + (1 - beta2) * column;
    const std::vector<float> estimate = estimate_of(rows, columns, second);
    for (std::size_t i = 0; i < value.size(); ++i) {
      update[i] /= std::max(std::sqrt(estimate[i]), static_cast<float>(floor()));
    }
    double lr = is_torch ? std::min(c.lr, 1 / std::sqrt(step)) : c.lr;
    if (c.threshold > 0) lr /= std::max(1.0, rms(update) / c.threshold);
    if (c.least_scale > 0) lr *= std::max<double>(c.least_scale, rms(value));
    const double decay = c.decay * (is_torch ? c.lr : 1);
    for (std::size_t i = 0; i < value.size(); ++i) {
      const float moved = static_cast<float>(lr) * update[i];
      first[i] = static_cast<float>(c.momentum) * first[i] + static_cast<float>(1 - c.momentum) * moved;
      update[i] = -(first[i] + static_cast<float>(decay) * value[i]);
    }
    return update;
  }

  void record(Trace& trace, int step, int iteration, const std::vector<float>& value,
              const std::vector<float>& gradient, const std::vector<float>& delta, const std::vector<float>& after,
              const std::vector<float>& moment, const std::vector<float>& estimate) const {
    std::map<Kind, std::vector<float>> recorded = {
        {Kind::kParam, value}, {Kind::kMainGrad, gradient}, {Kind::kParamDelta, delta}, {Kind::kParamAfter, after}};
    if (iteration == 0 && step > 1 && !is_torch) {
      recorded[Kind::kExpAvgSq] = estimate;
      if (says.momentum != 0) recorded[Kind::kExpAvg] = moment;
    }
    Shape part = shape;
    part[0] /= ranks;
    const auto size = static_cast<std::ptrdiff_t>(element_count(part));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const auto& [kind, values] : recorded) {
        TensorId id = tensor_id(kind, "fc.weight");
        id.iteration = iteration;
        add_tensor(trace, static_cast<std::size_t>(rank), id, part,
                   {values.begin() + rank * size, values.begin() + (rank + 1) * size});
      }
      trace.ranks[static_cast<std::size_t>(rank)].optimizer_steps.push_back(stated(step, iteration));
    }
  }

  OptimizerStep stated(int step, int iteration) const {
    OptimizerStep stated;
    stated.iteration = iteration;
    stated.optimizer = is_torch ? kTorch : kOptax;
    stated.step = step;
    stated.clip_factor = says.clip;
    stated.parameters = {"fc.weight"};
    stated.options = {{"lr", says.lr}, {"weight_decay", says.decay}};
    if (is_torch) {
      stated.options.insert({{"beta2_decay", -says.decay_rate}, {"d", says.threshold}, {"eps2", says.least_scale}});
    } else {
      stated.options.insert({{"beta2", 1 - std::pow(step, -says.decay_rate)}, {"eps", says.eps}});
      if (says.threshold > 0) stated.options["clipping_threshold"] = says.threshold;
      if (says.least_scale > 0) stated.options["min_scale"] = says.least_scale;
      if (says.momentum > 0) stated.options["beta1"] = says.momentum;
      if (dims) stated.options["row_mean_dim"] = static_cast<double>(dims->first);
      if (dims) stated.options["column_mean_dim"] = static_cast<double>(dims->second);
    }
    states(stated);
    return stated;
  }
};

AlignedTrace aligned_run(const FactoredRun& run) {
  return align_trace(run.trace(), annotations(run.ranks > 1 ? "fc.weight: {tp_dim: 0}\n" : ""));
}

StepCheck check_of(const FactoredRun& run) {
  const AlignedTrace one = aligned_run(run);
  return check_steps(*one.trace, one.alignment, 1);
}

// `iteration: message` of each wrong update.
std::vector<std::string> wrong_steps(const FactoredRun& run) {
  std::vector<std::string> lines;
  for (const Finding& finding : check_of(run).findings) {
    if (finding.verdict != Verdict::kFail) continue;
    lines.push_back(std::to_string(finding.id.iteration) + ": " + finding.message);
  }
  return lines;
}

void is_proved(const FactoredRun& run) {
  const StepCheck check = check_of(run);
  for (const Finding& finding : check.findings) {
    CAPTURE(finding.message);
    CHECK(finding.verdict == Verdict::kPass);
  }
  CHECK(check.coverage.updates_checked == run.iterations);
  CHECK(check.coverage.worst > 0);
  CHECK(check.coverage.worst <= 1);
}

}  // namespace

TEST_CASE("right steps of Adafactor are proved") {
  FactoredRun run;
  const auto both = [&](double Numbers::* number, double value) { run.says.*number = run.computes.*number = value; };
  SUBCASE("of a matrix") {}
  SUBCASE("of a matrix that is averaged the other way round") { run.dims = {{1, 0}}; }
  SUBCASE("of three dimensions") {
    run.shape = {3, 12, 10};
    SUBCASE("the first of which is apart") { run.dims = {{1, 2}}; }
    SUBCASE("the last of which is apart") { run.dims = {{0, 1}}; }
    SUBCASE("the one in the middle of which is apart") { run.dims = {{2, 0}}; }
  }
  SUBCASE("that is not factored") {
    run.dims.reset();
    SUBCASE("of a vector") { run.shape = {40}; }
    SUBCASE("of more elements than are read in one go") { run.shape = {70, 100}; }
    SUBCASE("late") { run.steps_before = 4; }
  }
  SUBCASE("of many elements") { run.shape = {600, 500}; }
  SUBCASE("with momentum") { both(&Numbers::momentum, 0.9); }
  SUBCASE("with momentum, late") { both(&Numbers::momentum, 0.9), run.steps_before = 4; }
  SUBCASE("with weight decay") { both(&Numbers::decay, 1e-3); }
  SUBCASE("without clipping") { both(&Numbers::threshold, 0); }
  SUBCASE("clipped by more than its norm") { both(&Numbers::threshold, 0.3); }
  SUBCASE("that the parameter's size does not scale") { both(&Numbers::least_scale, 0); }
  SUBCASE("of a parameter that is smaller than the least scale") { both(&Numbers::least_scale, 10); }
  SUBCASE("of gradients that are clipped by their norm") { both(&Numbers::clip, 0.25); }
  SUBCASE("late") { run.steps_before = 4; }
  SUBCASE("of PyTorch") {
    run.is_torch = true, run.dims = {{1, 0}};
    SUBCASE("of a matrix") {}
    SUBCASE("of three dimensions") { run.shape = {3, 12, 10}, run.dims = {{2, 1}}; }
    SUBCASE("of a vector") { run.shape = {40}, run.dims.reset(); }
    SUBCASE("whose learning rate falls with the steps") { both(&Numbers::lr, 2); }
    SUBCASE("with weight decay") { both(&Numbers::decay, 0.1); }
  }
  is_proved(run);
}

TEST_CASE("a wrong step of Adafactor is named where it happens") {
  std::function<void(FactoredRun&)> fault;
  std::string words = "0: fc.weight param_delta, iteration 0: ";
  SUBCASE("learning rate, by 1e-3") {
    fault = [](FactoredRun& run) { run.computes.lr *= 1.001; };
    words += "the update is 1.001 times what lr 0.01 gives, on rank 0 (tp=0)";
  }
  SUBCASE("learning rate, by 1e-4") {
    fault = [](FactoredRun& run) { run.computes.lr *= 1.0001; };
  }
  SUBCASE("a row that is not updated") {
    fault = [](FactoredRun& run) {
      run.becomes = [](int, const Shape& index, float before, float after) { return index[0] == 5 ? before : after; };
    };
    words += "row 5 not updated, on rank 0 (tp=0)";
  }
  SUBCASE("the decay of the second moment, which the first step does not have") {
    fault = [](FactoredRun& run) { run.computes.decay_rate = 0.79; };
    words = "1: fc.weight param_delta, iteration 1: ";
  }
  SUBCASE("no clipping") {
    fault = [](FactoredRun& run) { run.says.threshold = 0.5, run.computes.threshold = 0; };
    words += "the update is ";
  }
  SUBCASE("no scale by the parameter") {
    fault = [](FactoredRun& run) { run.computes.least_scale = 0; };
    words += "the update is ";
  }
  SUBCASE("weight decay") {
    fault = [](FactoredRun& run) { run.computes.decay = 1e-3; };
  }
  FactoredRun optax, torch, whole;
  torch.is_torch = true, torch.dims = {{1, 0}};
  whole.dims.reset();
  std::vector<FactoredRun> runs = {optax, torch, whole};
  for (FactoredRun& run : runs) {
    CAPTURE(run.is_torch);
    CAPTURE(run.dims.has_value());
    fault(run);
    const std::vector<std::string> wrong = wrong_steps(run);
    const std::string first = wrong.empty() ? "" : wrong.front();
    CAPTURE(first);
    CHECK(first.starts_with(words));
  }
}

TEST_CASE("a step of Adafactor that cannot be computed again says why, and is no pass") {
  FactoredRun run;
  std::string why;
  SUBCASE("of a part of the parameter") {
    run.ranks = 2;
    why = "its rank has a part of it, and the rule of its optimizer follows from the whole";
  }
  SUBCASE("of dimensions that are not there") {
    for (const double dim : {2.0, 7.0, 1e300, std::nan("")}) {
      run.states = [=](OptimizerStep& step) { step.options["row_mean_dim"] = dim; };
      for (const auto& [reason, count] : check_of(run).coverage.not_checkable) {
        CHECK(reason == "its optimizer's options name dimensions that it does not have");
        CHECK(count == 3);
      }
    }
    why = "its optimizer's options name dimensions that it does not have";
  }
  SUBCASE("of one dimension twice") {
    run.states = [](OptimizerStep& step) { step.options["row_mean_dim"] = step.options["column_mean_dim"]; };
    why = "its optimizer's options name dimensions that it does not have";
  }
  SUBCASE("of PyTorch, whose state is not recorded") {
    run.is_torch = true, run.dims = {{1, 0}}, run.steps_before = 2;
    why = "its optimizer's state before the step was not recorded";
  }
  SUBCASE("without an option") {
    run.states = [](OptimizerStep& step) { step.options.erase("beta2"); };
    why = "option 'beta2' of its optimizer was not recorded";
  }
  const StepCheck check = check_of(run);
  CHECK(check.coverage.updates_checked == 0);
  REQUIRE(check.coverage.not_checkable.size() == 1);
  CHECK(check.coverage.not_checkable.begin()->first == why);
}

TEST_CASE("Adafactor's options are compared with the reference's by name") {
  const auto words = [](const std::function<void(FactoredRun&)>& change) {
    FactoredRun reference, candidate;
    change(candidate);
    const AlignedTrace one = aligned_run(reference), other = aligned_run(candidate);
    const std::pair key(1, std::string("fc.weight"));
    const StatedSteps of_reference = stated_steps(one), of_candidate = stated_steps(other);
    return describe_other_options(of_reference.at(key).front(), of_candidate.at(key).front(), {});
  };
  CHECK(words([](FactoredRun&) {}) == "");
  CHECK(words([](FactoredRun& run) { run.says.lr *= 1.001; }) == "learning rate 0.01001, reference 0.01");
  CHECK(words([](FactoredRun& run) { run.says.decay_rate = 0.79; }) == "beta2 0.4217, reference 0.4257");
  CHECK(words([](FactoredRun& run) { run.says.threshold = 0; }) == "clipping threshold 0, reference 1");
  CHECK(words([](FactoredRun& run) { run.says.least_scale = 0; }) ==
        "smallest scale of a parameter 0, reference 0.001");
  CHECK(words([](FactoredRun& run) { run.dims.reset(); }) == "factored second moment off, reference on");
}

TEST_SUITE_END();
