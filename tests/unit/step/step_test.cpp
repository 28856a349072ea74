#include "step/step.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>

#include "numeric/convert.h"
#include "step/judge_steps.h"
#include "step/options.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("step");

namespace {

constexpr const char* kAdam = "torch.optim.adam.Adam";
constexpr std::int64_t kRows = 8, kColumns = 16;  // of fc.weight, half of whose rows each of the two ranks has

float noise(std::int64_t i, int seed) {
  return static_cast<float>(std::sin(static_cast<double>(i + 1) * 0.7 + seed * 1.3) * std::exp(-(i % 7)));
}

// Holds what the optimizer of one parameter computes with, which may be other than what it says.
struct Arithmetic {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0, l2 = 0, clip = 0.5;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

// A run of an fp32 optimizer with bf16 parameters, on two ranks: `fc.weight` is split, `norm.weight` replicated.
struct Run {
  std::string optimizer = kAdam;
  std::map<std::string, double> options = {{"lr", 1e-3},  {"beta1", 0.9},      {"beta2", 0.95},
                                           {"eps", 1e-8}, {"weight_decay", 0}, {"amsgrad", 0}};
  Arithmetic arithmetic{};
  int first_iteration = 0, iterations = 2, steps_before = 0;
  bool with_master = true, records_state = true, amsgrad = false, sgd = false, lion = false;
  Dtype parameter = Dtype::kBFloat16;
  // May change what one element becomes; the arguments: name, rank, iteration, element, value before and after.
  std::function<float(const std::string&, int, int, std::int64_t, float, float)> becomes =
      [](const std::string&, int, int, std::int64_t, float, float after) { return after; };
  std::function<float(const std::string&, std::int64_t, float before, float after)> copied =
      [](const std::string&, std::int64_t, float, float after) { return after; };
  std::function<void(OptimizerStep&)> says = [](OptimizerStep&) {};
  float gradient_of_first = 0;  // not 0: of the first element, in all iterations

  Trace trace() const {
    Trace made = mesh_trace("tp=2", 2);
    for (int rank = 0; rank < 2; ++rank) {
      add_parameter(made, rank, "fc.weight", {kRows / 2, kColumns}, rank * kRows / 2 * kColumns);
      add_parameter(made, rank, "norm.weight", {kColumns}, 1000);
    }
    return made;
  }

 private:
  static void add(Trace& trace, int rank, int iteration, Kind kind, const std::string& name, const Shape& shape,
                  const std::vector<double>& values, Dtype dtype) {
    RankTrace& one = trace.ranks[static_cast<std::size_t>(rank)];
    auto& bytes = std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(one.file))->bytes;
    Entry entry;
    entry.id = tensor_id(kind, name);
    entry.id.iteration = iteration;
    entry.shape = shape;
    entry.dtype = dtype;
    entry.order = one.entries.size();
    entry.offset = bytes.size();
    entry.bytes = values.size() * static_cast<std::size_t>(size_of(dtype));
    bytes.resize(bytes.size() + entry.bytes);
    narrow(values.data(), dtype, static_cast<std::int64_t>(values.size()), bytes.data() + entry.offset);
    entry.checksum = std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(bytes.data() + entry.offset), static_cast<std::size_t>(entry.bytes)});
    one.entries.push_back(std::move(entry));
  }

  float rounded(double value) const {
    std::array<std::byte, 8> bytes{};
    double wide = 0;
    narrow(&value, parameter, 1, bytes.data());
    widen(bytes.data(), parameter, 1, &wide);
    return static_cast<float>(wide);
  }

  void add_parameter(Trace& trace, int rank, const std::string& name, const Shape& shape, std::int64_t at) const {
    const auto count = static_cast<std::size_t>(element_count(shape));
    struct Element {
      float value, held, first = 0, second = 0, largest = 0;
    };
    std::vector<Element> elements;
    for (std::size_t i = 0; i < count; ++i) {
      const float value = name == "norm.weight" ? 1 + noise(at + static_cast<std::int64_t>(i), 5) / 8
                                                : noise(at + static_cast<std::int64_t>(i), 3) / 32;
      elements.push_back({with_master ? value : rounded(value), rounded(value)});
    }
    for (int step = 1; step <= steps_before + iterations; ++step) {
      const int iteration = first_iteration + step - 1 - steps_before;
      std::map<Kind, std::vector<double>> recorded;
      for (std::size_t i = 0; i < count; ++i) {
        Element& one = elements[i];
        const Arithmetic& a = arithmetic;
        const bool first_is_set = gradient_of_first != 0 && i == 0;
        const float main = first_is_set ? gradient_of_first : noise(at + static_cast<std::int64_t>(i), 17 + step) / 50;
        const float before = one.value, held = one.held;
        const Element old = one;
        float after = before;
        const float g = static_cast<float>(a.clip) * main + static_cast<float>(a.l2) * before;
        if (sgd) {
          const float kept =
              step == 1 ? g : static_cast<float>(a.momentum) * one.first + static_cast<float>(1 - a.dampening) * g;
          one.first = kept;
          const float direction = a.momentum == 0 ? g : a.nesterov ? g + static_cast<float>(a.momentum) * kept : kept;
          after = before - static_cast<float>(a.lr) * direction;
        } else if (lion) {
          const float mixed = static_cast<float>(a.beta1) * one.first + static_cast<float>(1 - a.beta1) * g;
          const float sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
          after = before * static_cast<float>(1 - a.lr * a.decay) - static_cast<float>(a.lr) * sign;
          one.first = static_cast<float>(a.beta2) * one.first + static_cast<float>(1 - a.beta2) * g;
        } else {
          one.first = static_cast<float>(a.beta1) * one.first + static_cast<float>(1 - a.beta1) * g;
          one.second = static_cast<float>(a.beta2) * one.second + static_cast<float>(1 - a.beta2) * g * g;
          one.largest = std::max(one.largest, one.second);
          const float scale = static_cast<float>(std::sqrt(1 - std::pow(a.beta2, step)));
          const float denominator = std::sqrt(amsgrad ? one.largest : one.second) / scale + static_cast<float>(a.eps);
          after = before * static_cast<float>(1 - a.lr * a.decay) -
                  static_cast<float>(a.lr / (1 - std::pow(a.beta1, step))) * (one.first / denominator);
        }
        after = becomes(name, rank, iteration, static_cast<std::int64_t>(i), before, after);
        one.value = with_master ? after : rounded(after);
        one.held = copied(name, static_cast<std::int64_t>(i), held, rounded(one.value));
        if (!with_master) one.value = one.held;
        recorded[Kind::kMainGrad].push_back(main);
        recorded[Kind::kParam].push_back(held);
        recorded[Kind::kMaster].push_back(before);
        recorded[Kind::kExpAvg].push_back(old.first);
        recorded[Kind::kExpAvgSq].push_back(old.second);
        recorded[Kind::kMaxExpAvgSq].push_back(old.largest);
        recorded[Kind::kParamDelta].push_back(static_cast<float>(one.value - before));
        recorded[Kind::kParamAfter].push_back(one.held);
      }
      if (iteration < first_iteration) continue;
      if (!(records_state && with_master && iteration == first_iteration)) recorded.erase(Kind::kMaster);
      const bool has_state = records_state && step > 1 && iteration == first_iteration;
      if (has_state && sgd) recorded[Kind::kMomentumBuffer] = recorded[Kind::kExpAvg];
      if (!has_state || sgd) {
        for (const Kind kind : {Kind::kExpAvg, Kind::kExpAvgSq, Kind::kMaxExpAvgSq}) recorded.erase(kind);
      }
      if (lion) recorded.erase(Kind::kExpAvgSq), recorded.erase(Kind::kMaxExpAvgSq);
      for (const auto& [kind, values] : recorded) {
        const bool is_held = kind == Kind::kParam || kind == Kind::kParamAfter;
        add(trace, rank, iteration, kind, name, shape, values, is_held ? parameter : Dtype::kFloat32);
      }
      OptimizerStep stated;
      stated.iteration = iteration;
      stated.optimizer = optimizer;
      stated.options = options;
      if (!sgd) stated.step = step;
      stated.clip_factor = 0.5;
      stated.master = with_master ? "float32" : "";
      stated.parameters = {name};
      says(stated);
      trace.ranks[static_cast<std::size_t>(rank)].optimizer_steps.push_back(std::move(stated));
    }
  }
};

AlignedTrace aligned(const Run& run) {
  return align_trace(run.trace(), annotations("fc.weight: {tp_dim: 0}\nnorm.weight: {tp: replicate}\n"));
}

StepCheck checked(const Run& run, int threads = 1) {
  const AlignedTrace one = aligned(run);
  return check_steps(*one.trace, one.alignment, threads);
}

// The messages of what is wrong, `name iteration: reason: what`.
std::vector<std::string> wrong_in(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    if (finding.verdict != Verdict::kFail) continue;
    lines.push_back(finding.id.name.get() + " " + std::to_string(finding.id.iteration) + ": " +
                    std::string(name_of(finding.reason)) + ": " +
                    finding.message.substr(to_string(finding.id).size() + 2));
  }
  return lines;
}

std::string first_wrong(const Run& run) {
  const std::vector<std::string> lines = wrong_in(checked(run).findings);
  return lines.empty() ? "" : lines.front();
}

std::int64_t updates_in(const std::map<TensorId, std::vector<TensorId>>& proved) {
  return std::count_if(proved.begin(), proved.end(),
                       [](const auto& one) { return one.first.kind == Kind::kParamDelta; });
}

void is_right(const Run& run) {
  const StepCheck check = checked(run);
  CHECK(wrong_in(check.findings) == std::vector<std::string>{});
  CHECK(check.coverage.parameters_checked == 2);
  CHECK(check.coverage.updates_checked == 2 * run.iterations);
  CHECK(check.coverage.copies_checked == 2 * run.iterations);
  CHECK(check.coverage.worst > 0);
  CHECK(check.coverage.worst <= 1);
}

struct BothRuns {
  AlignedTrace reference, candidate;
  JudgedSteps judged;
};

BothRuns compared(const Run& reference, const Run& candidate) {
  BothRuns both{aligned(reference), aligned(candidate), {}};
  const Matching matching = match(both.reference.alignment, both.candidate.alignment);
  both.judged =
      judge_steps(both.reference, both.candidate, {matching, compare(matching.pairs, {1, {}, false}), nullptr, 1});
  return both;
}

void says_no_optimizer(OptimizerStep& step) { step = {step.iteration, 0, "", {}, {}, 1, {}, "", step.parameters}; }

}  // namespace

TEST_CASE("values that updates outgrow are carried on with all that was rounded") {
  // An optimizer that nobody knows, of whose values each is another: their differences are no numbers of fp32.
  Run run;
  run.optimizer = "mine.Odd";
  run.parameter = Dtype::kFloat32;
  run.iterations = 8;
  for (const int scale : {1, 30, 1000}) {
    run.becomes = [&](const std::string&, int rank, int iteration, std::int64_t i, float, float) {
      return noise(i * 64 + rank * 8 + iteration, 23) * noise(i, 29) / static_cast<float>(scale);
    };
    const StepCheck check = checked(run);
    CHECK(wrong_in(check.findings) == std::vector<std::string>{});
    CHECK(check.coverage.copies_checked == 2 * run.iterations);
  }
}

TEST_CASE("right steps of every known rule are proved") {
  Run run;
  SUBCASE("fp32 parameters without masters") { run.with_master = false, run.parameter = Dtype::kFloat32; }
  SUBCASE("bf16 parameters without masters") { run.with_master = false; }
  SUBCASE("masters that were not recorded") { run.records_state = false; }
  SUBCASE("eight iterations") { run.iterations = 8; }
  SUBCASE("recording begins late, with the state") { run.first_iteration = 6, run.steps_before = 6; }
  SUBCASE("decoupled weight decay") {
    run.optimizer = "torch.optim.adamw.AdamW";
    run.options["weight_decay"] = run.arithmetic.decay = 0.1;
  }
  SUBCASE("L2") { run.options["weight_decay"] = run.arithmetic.l2 = 0.1; }
  SUBCASE("amsgrad") { run.options["amsgrad"] = run.amsgrad = true, run.iterations = 4; }
  SUBCASE("amsgrad, late") { run.options["amsgrad"] = run.amsgrad = true, run.first_iteration = run.steps_before = 3; }
  SUBCASE("a learning rate of 1e-5") { run.options["lr"] = run.arithmetic.lr = 1e-5; }
  SUBCASE("SGD") {
    run.sgd = true, run.optimizer = "torch.optim.sgd.SGD", run.options = {{"lr", 0.1}}, run.arithmetic.lr = 0.1;
    SUBCASE("plain") {}
    SUBCASE("weight decay") { run.options["weight_decay"] = run.arithmetic.l2 = 0.01; }
    SUBCASE("momentum and dampening") {
      run.options["momentum"] = run.arithmetic.momentum = 0.9,
      run.options["dampening"] = run.arithmetic.dampening = 0.1;
      SUBCASE("from the first step") {}
      SUBCASE("late") { run.first_iteration = run.steps_before = 3; }
    }
    SUBCASE("Nesterov's") {
      run.options["momentum"] = run.arithmetic.momentum = 0.9, run.options["nesterov"] = run.arithmetic.nesterov = true;
    }
  }
  SUBCASE("optax's Adam") { run.optimizer = "optax.adam"; }
  SUBCASE("optax's Lion") {
    run.lion = true, run.optimizer = "optax.lion", run.options = {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.95}};
    run.options["weight_decay"] = run.arithmetic.decay = 0.1, run.options["decoupled_weight_decay"] = 1;
    SUBCASE("from the first step") {}
    SUBCASE("late") { run.first_iteration = run.steps_before = 3; }
  }
  is_right(run);
}

TEST_CASE("a step with another number than the options' is named in the iteration where it happens") {
  Run run;
  const auto is_first = [&](const std::string& words) {
    const std::string first = first_wrong(run);
    CAPTURE(first);
    CHECK(has(first, words));
  };
  SUBCASE("learning rate") {
    run.arithmetic.lr *= 1.01;
    is_first("fc.weight 0: step-differs: the update is 1.01 times what lr 0.001 gives, on ranks 0, 1");
  }
  SUBCASE("learning rate, by 1e-4") {
    run.arithmetic.lr *= 1.0001;
    is_first("fc.weight 0: step-differs: ");
  }
  SUBCASE("eps") {
    run.arithmetic.eps = 1e-6;
    is_first("fc.weight 0: step-differs: ");
  }
  SUBCASE("Lion's learning rate") {
    run.lion = true, run.optimizer = "optax.lion";
    run.arithmetic.lr *= 1.0001;
    is_first("fc.weight 0: step-differs: ");
  }
  SUBCASE("Lion's momentum, which does not show in the first step") {
    run.lion = true, run.optimizer = "optax.lion", run.arithmetic.beta2 = 0.5;
    is_first("fc.weight 1: step-differs: ");
  }
  SUBCASE("beta2, which does not show in the first step") {
    run.arithmetic.beta2 = 0.99;
    is_first("fc.weight 1: step-differs: ");
  }
  SUBCASE("weight decay") {
    run.arithmetic.decay = 0.01;
    is_first("what decoupled weight decay 0.01 gives; its option is 0");
  }
  SUBCASE("L2") {
    run.arithmetic.l2 = 0.01;
    is_first("fc.weight 0: step-differs: ");
  }
  SUBCASE("clipping") {
    run.arithmetic.clip = 0.9995;
    run.says = [](OptimizerStep& step) { step.clip_factor = step.iteration == 1 ? 1 : 0.9995; };
    is_first("fc.weight 1: step-differs: ");
  }
}

TEST_CASE("a step of a gradient that the optimizer has yet to add up over ranks is not checked, nor called wrong") {
  for (const std::int64_t ranks : {1, 2}) {
    CAPTURE(ranks);
    Run run;
    run.arithmetic.lr *= 1.01;
    Trace trace = run.trace();
    const Annotations rules = annotations("fc.weight: {tp_dim: 0}\nnorm.weight: {tp: replicate}\n");
    const Alignment alignment = align(trace, rules, {});
    AxisPlacement term;
    term.axis = "tp";
    term.placement = Placement::kPartial;
    RecordedMapping mapping;
    mapping.axes.emplace().push_back({term, ranks});
    for (RankTrace& rank : trace.ranks) {
      for (Entry& entry : rank.entries) {
        if (entry.id.kind == Kind::kMainGrad) entry.mapping = std::make_shared<const RecordedMapping>(mapping);
      }
    }
    const StepCheck check = check_steps(trace, alignment, 1);
    const bool unsummed =
        check.coverage.not_checkable.contains("its gradient is a term of a sum that the optimizer makes");
    CHECK(unsummed == (ranks > 1));
    CHECK((check.coverage.updates_checked == 0) == (ranks > 1));
    const bool any_wrong = std::any_of(check.findings.begin(), check.findings.end(), is_wrong);
    CHECK(any_wrong == (ranks == 1));
  }
}

TEST_CASE("the slice of the parameter that is not updated is named, with its rank") {
  Run run;
  SUBCASE("one rank's half") {
    run.becomes = [](const std::string& name, int rank, int, std::int64_t, float before, float after) {
      return name == "fc.weight" && rank == 1 ? before : after;
    };
    CHECK(first_wrong(run) == "fc.weight 0: step-differs: rows 4-7 not updated, on rank 1 (tp=1)");
  }
  SUBCASE("one element, in the second iteration") {
    run.becomes = [](const std::string& name, int rank, int iteration, std::int64_t i, float before, float after) {
      return name == "fc.weight" && rank == 1 && iteration == 1 && i == 17 ? before : after;
    };
    CHECK(first_wrong(run) == "fc.weight 1: step-differs: [5:6, 1:2] not updated, on rank 1 (tp=1)");
  }
  SUBCASE("one copy of a replicated parameter") {
    run.becomes = [](const std::string& name, int rank, int, std::int64_t, float before, float after) {
      return name == "norm.weight" && rank == 1 ? before : after;
    };
    CHECK(first_wrong(run) == "norm.weight 0: step-differs: every element not updated, on rank 1 (tp=1)");
  }
  SUBCASE("one copy that was set back, or never changed, where the program says that values were changed") {
    run.becomes = [](const std::string& name, int rank, int, std::int64_t, float before, float after) {
      return name == "norm.weight" && rank == 1 ? before : after;
    };
    run.says = [](OptimizerStep& step) { step.changed_after = true; };
    CHECK(first_wrong(run) ==
          "norm.weight 0: step-differs: every element what it was before the step, which was undone or never made, "
          "on rank 1 (tp=1)");
  }
  SUBCASE("masters that are rounded to bf16") {
    run.becomes = [](const std::string&, int, int, std::int64_t, float, float after) {
      const double value = after;
      std::array<std::byte, 2> bytes{};
      double rounded = 0;
      narrow(&value, Dtype::kBFloat16, 1, bytes.data());
      widen(bytes.data(), Dtype::kBFloat16, 1, &rounded);
      return static_cast<float>(rounded);
    };
    CHECK(has(first_wrong(run), "fc.weight 0: step-differs: "));
  }
}

TEST_CASE("a parameter that is not the rounded master is named") {
  Run run;
  SUBCASE("never copied") {
    run.copied = [](const std::string& name, std::int64_t, float before, float after) {
      return name == "fc.weight" ? before : after;
    };
    CHECK(has(first_wrong(run), "fc.weight 0: copy-differs: "));
    CHECK(has(first_wrong(run), "not brought up to date after the step, on ranks 0, 1"));
  }
  SUBCASE("truncated") {
    run.copied = [](const std::string&, std::int64_t, float, float after) { return after * (1 - 0x1p-7f); };
    CHECK(has(first_wrong(run), "fc.weight 0: copy-differs: "));
  }
}

TEST_CASE("what cannot be checked says why, and is no pass") {
  Run run;
  std::string reason;
  SUBCASE("an unknown optimizer") {
    run.optimizer = "muon.Muon";
    reason = "the rule of muon.Muon is not known";
  }
  SUBCASE("several steps in an iteration") {
    run.says = [](OptimizerStep& step) { step.calls = 2; };
    reason = "its optimizer stepped 2 times in the iteration";
  }
  SUBCASE("the state was not recorded") {
    run.steps_before = 3, run.records_state = false;
    reason = "its optimizer's state before the step was not recorded";
  }
  SUBCASE("an option was not recorded") {
    run.options.erase("eps");
    reason = "option 'eps' of its optimizer was not recorded";
  }
  SUBCASE("no clip factor and no gradient") {
    run.says = [](OptimizerStep& step) { step.clip_factor.reset(); };
    reason = "the gradient that its optimizer was given was not recorded";
  }
  const StepCheck check = checked(run);
  CHECK(check.coverage.updates_checked == 0);
  CHECK(check.coverage.parameters_checked == 0);
  CHECK(check.coverage.not_checkable == std::map<std::string, std::int64_t>{{reason, 4}});
  CHECK(updates_in(check.rests_on) == 0);
  for (const Finding& finding : check.findings) {
    CHECK((finding.verdict == Verdict::kUntrusted || finding.id.kind == Kind::kParamAfter));
  }
}

TEST_CASE("a gradient that is not finite leaves its update and later ones open") {
  Run run;
  run.gradient_of_first = std::numeric_limits<float>::infinity();
  const StepCheck check = checked(run);
  CHECK(check.coverage.not_checkable ==
        std::map<std::string, std::int64_t>{{"its gradient or its optimizer's state is not finite", 4}});
}

TEST_CASE("a skipped step changes nothing") {
  Run run;
  run.says = [](OptimizerStep& step) { step.calls = 0; };
  CHECK(has(first_wrong(run),
            "fc.weight 0: step-differs: every element changed, on ranks 0, 1, though the optimizer "
            "did not step"));
  run.becomes = [](const std::string&, int, int, std::int64_t, float before, float) { return before; };
  CHECK(first_wrong(run) == "");
}

TEST_CASE("any number of threads finds the same") {
  Run run;
  run.arithmetic.lr *= 1.01;
  const StepCheck one = checked(run, 1), four = checked(run, 4);
  CHECK(wrong_in(one.findings) == wrong_in(four.findings));
  CHECK(one.coverage.worst == four.coverage.worst);
}

TEST_CASE("a trace that says nothing of optimizers is not checked") {
  AlignedTrace one = aligned({});
  Trace trace = *one.trace;
  for (RankTrace& rank : trace.ranks) rank.optimizer_steps.clear();
  CHECK(check_steps(trace, one.alignment, 1).findings.empty());
}

TEST_CASE("options are compared with the reference's by name") {
  Run candidate;
  std::string words;
  SUBCASE("learning rate") {
    candidate.options["lr"] = candidate.arithmetic.lr = 1.2e-3;
    words = "learning rate 0.0012, reference 0.001";
  }
  SUBCASE("beta2 and eps") {
    candidate.options["beta2"] = candidate.arithmetic.beta2 = 0.999;
    candidate.options["eps"] = candidate.arithmetic.eps = 1e-6;
    words = "beta2 0.999, reference 0.95; eps 1e-06, reference 1e-08";
  }
  SUBCASE("weight decay") {
    candidate.optimizer = "torch.optim.adamw.AdamW";
    candidate.options["weight_decay"] = candidate.arithmetic.decay = 0.1;
    words = "weight decay 0.1, reference 0; decoupled weight decay on, reference off";
  }
  SUBCASE("the step's count") {
    candidate.says = [](OptimizerStep& step) { *step.step += 1; };
    words = "step 2, reference 1";
  }
  SUBCASE("no optimizer") {
    candidate.says = says_no_optimizer;
    candidate.becomes = [](const std::string&, int, int, std::int64_t, float before, float) { return before; };
    words = "in no optimizer, reference optimizer torch.optim.adam.Adam";
  }
  SUBCASE("another optimizer") {
    candidate.sgd = true, candidate.optimizer = "torch.optim.sgd.SGD";
    words = "optimizer torch.optim.sgd.SGD, reference optimizer torch.optim.adam.Adam";
  }
  SUBCASE("the clip factor") {
    candidate.arithmetic.clip = 0.6;
    candidate.says = [](OptimizerStep& step) { step.clip_factor = 0.6; };
    words = "gradients clipped by 0.6, reference 0.5 (may differ by 1e-05)";
  }
  SUBCASE("no fp32 masters") {
    candidate.with_master = false;
    words = "updates a value in bfloat16, reference float32";
  }
  const JudgedSteps judged = compared({}, candidate).judged;
  REQUIRE(!judged.verdicts.findings.empty());
  const std::vector<std::string> lines = wrong_in(judged.verdicts.findings);
  CHECK(std::find(lines.begin(), lines.end(), "fc.weight 0: options-differ: " + words) != lines.end());
  CHECK(updates_in(judged.verdicts.proved) == 0);
}

TEST_CASE("a parameter that changes in no optimizer is stepped elsewhere") {
  Run candidate;
  candidate.says = says_no_optimizer;
  const JudgedSteps judged = compared({}, candidate).judged;
  CHECK(wrong_in(judged.verdicts.findings).empty());
  CHECK(judged.verdicts.elsewhere.size() == 4);
  for (const auto& [update, square_of_change] : judged.verdicts.elsewhere) {
    const bool is_swallowed = update.name == "norm.weight" && update.iteration == 0;  // as bfloat16 rounds, in both
    CHECK((square_of_change == 0) == is_swallowed);
  }
}

TEST_CASE("of masters that a program keeps by hand, what becomes of the options is compared") {
  OptimizerStep wanted, masters;
  wanted.optimizer = masters.optimizer = "torch.optim.sgd.SGD";
  wanted.options = {{"lr", 0.1}, {"foreach", 0}};
  wanted.options_after = {{"lr", 0.05}};
  masters.options = {{"lr", 0.025}, {"foreach", 1}};  // of gradients that are summed over four ranks
  masters.parameters = {"(masters).0"};
  CHECK(are_masters(masters));
  OptimizerStep others = masters;
  others.options_after.emplace();
  std::string words;
  SUBCASE("as in the reference") { masters.options_after = {{"lr", 0.0125}}; }
  SUBCASE("otherwise") {
    masters.options_after.emplace();
    words = "for the next step lr 0.025, reference 0.0125";
  }
  SUBCASE("by a class of its own") { masters.optimizer = others.optimizer = "mine.Master"; }
  SUBCASE("not said, since the program ended") { masters.options_after = others.options_after = std::nullopt; }
  const std::vector<const OptimizerStep*> groups{&others, &masters};
  CHECK(describe_other_development({0, &wanted}, groups, {}) == words);
}

TEST_CASE("options that choose a kernel may differ") {
  Run candidate;
  candidate.options["fused"] = 1;
  candidate.options["foreach"] = 1;
  candidate.options["lr"] = static_cast<float>(1e-3);  // a tensor's
  const JudgedSteps judged = compared({}, candidate).judged;
  CHECK(wrong_in(judged.verdicts.findings) == std::vector<std::string>{});
  CHECK(updates_in(judged.verdicts.proved) == 4);
  CHECK(judged.verdicts.proved.size() == 8);  // and as many copies
}

TEST_CASE("a switch of an optimizer whose rule is not known may differ, and nothing else for the next step") {
  OptimizerStep wanted;
  wanted.optimizer = "prodigyopt.Prodigy";
  wanted.options = {{"d", 1e-6}, {"fsdp_in_use", 0}, {"lr", 1}};
  wanted.options_after.emplace();
  OptimizerStep sharded = wanted;
  sharded.options["fsdp_in_use"] = 1;
  const auto words = [&] {
    StatedStep reference, candidate;
    reference.step = &wanted;
    candidate.step = &sharded;
    return describe_other_options(reference, candidate, {});
  };
  CHECK(words().empty());
  sharded.options_after = {{"d", 2e-6}};
  CHECK(words() == "for the next step d 2e-06, reference 1e-06");
  sharded.options_after = {{"fsdp_in_use", 0.0}};  // it is changed
  CHECK(words().empty());
  wanted.options_after = {{"fsdp_in_use", 1.0}};
  CHECK(words() == "for the next step fsdp_in_use 0, reference 1");
}

TEST_CASE("a copy rests on the updates since a value was recorded, and on that") {
  const StepCheck check = checked(Run());
  const auto kinds_of = [&](int iteration) {
    std::vector<std::string> kinds;
    for (const auto& [id, rests_on] : check.rests_on) {
      if (id.kind != Kind::kParamAfter || id.name != "fc.weight" || id.iteration != iteration) continue;
      for (const TensorId& one : rests_on)
        kinds.push_back(std::string(name_of(one.kind)) + " " + std::to_string(one.iteration));
    }
    return kinds;
  };
  CHECK(kinds_of(0) == std::vector<std::string>{"param_delta 0", "master 0"});
  CHECK(kinds_of(1) == std::vector<std::string>{"param_delta 0", "master 0", "param_delta 1"});
}

TEST_CASE("the copies of an optimizer whose rule is not known are checked") {
  Run run;
  run.optimizer = "mine.Lion";
  StepCheck check = checked(run);
  CHECK(check.coverage.updates_checked == 0);
  CHECK(check.coverage.copies_checked == 4);
  CHECK(wrong_in(check.findings).empty());
  CHECK(check.unchecked.size() == 4);
  run.copied = [](const std::string& name, std::int64_t i, float before, float after) {
    return name == "norm.weight" && i == 3 ? before + 1 : after;
  };
  const std::vector<std::string> wrong = wrong_in(checked(run).findings);
  REQUIRE(!wrong.empty());
  CHECK(has(wrong[0], "norm.weight 0: copy-differs"));
}

TEST_CASE("a wrong step of the reference is a finding, and one of a class that is not understood a note") {
  Run wrong;
  wrong.arithmetic.lr *= 1.5;
  SUBCASE("the candidate follows the rule") {
    const JudgedSteps judged = compared(wrong, {}).judged;
    REQUIRE(!judged.verdicts.findings.empty());
    CHECK(has(wrong_in(judged.verdicts.findings)[0], "in the reference, the update is 1.5 times"));
  }
  SUBCASE("neither does") {
    const JudgedSteps judged = compared(wrong, wrong).judged;
    CHECK(judged.verdicts.findings.empty());
    CHECK(updates_in(judged.verdicts.proved) == 0);
    REQUIRE(judged.notes.size() == 1);
    CHECK(has(judged.notes[0], "no step of torch.optim.adam.Adam is what its gradient, options and state give"));
    CHECK(judged.coverage->updates_checked == 0);
    CHECK(judged.coverage->parameters_checked == 0);
  }
}

TEST_CASE("a proved update passes where its tolerance is noise, if its gradients pass") {
  const BothRuns both = compared({}, {});
  const Matching matching = match(both.reference.alignment, both.candidate.alignment);
  std::vector<Difference> differences = compare(matching.pairs, {1, {}, false});
  ToleranceFile tolerance;
  for (std::size_t i = 0; i < matching.pairs.size(); ++i) {
    const TensorId& id = matching.pairs[i].candidate->id;
    differences[i].differing = 1;
    differences[i].difference_square = 0.01 * differences[i].reference_square;
    tolerance.tensors[{id.kind, id.name}].allowed = id.kind == Kind::kParamDelta ? 1.5 : 0.2;
  }
  const auto untrusted = [&] {
    const Report report =
        judge_all(both.reference.alignment, matching, differences, &tolerance, {}, both.judged.verdicts);
    return findings_in(report);
  };
  CHECK(untrusted() == std::vector<std::string>{});
  tolerance.tensors[{Kind::kMainGrad, "norm.weight"}].allowed = 1.5;
  CHECK(untrusted() == std::vector<std::string>{"norm.weight main_grad: noise", "norm.weight param_delta: noise",
                                                "norm.weight main_grad: noise", "norm.weight param_delta: noise"});
}

namespace {

// Says of every update and gradient what it may differ by; of single elements as little as of all.
ToleranceFile tight(double of_gradients, double of_updates) {
  ToleranceFile tolerance;
  for (const char* name : {"fc.weight", "norm.weight"}) {
    for (const Kind kind : {Kind::kMainGrad, Kind::kParamDelta, Kind::kParam, Kind::kParamAfter, Kind::kMaster,
                            Kind::kExpAvg, Kind::kExpAvgSq}) {
      const bool is_update = kind == Kind::kParamDelta || kind == Kind::kParamAfter;
      Tolerance& one = tolerance.tensors[{kind, name}];
      one.allowed = is_update ? of_updates : of_gradients;
      one.statistics[Statistic::kElement].allowed = 10 * one.allowed;
    }
  }
  return tolerance;
}

std::vector<std::string> wrong_where_first_gradients_are(float reference, float candidate) {
  Run of_reference, of_candidate;
  for (Run* run : {&of_reference, &of_candidate}) {
    run->iterations = 1;
    run->parameter = Dtype::kFloat32;
    run->with_master = false;
  }
  of_reference.gradient_of_first = reference;
  of_candidate.gradient_of_first = candidate;
  const AlignedTrace a = aligned(of_reference), b = aligned(of_candidate);
  const Matching matching = match(a.alignment, b.alignment);
  const std::vector<Difference> differences = compare(matching.pairs, {1, {}, false});
  const ToleranceFile tolerance = tight(1e-6, 1e-6);
  const JudgedSteps judged = judge_steps(a, b, {matching, differences, &tolerance, 1});
  std::vector<std::string> wrong;
  for (const Finding& finding :
       judge_all(a.alignment, matching, differences, &tolerance, {}, judged.verdicts).findings) {
    if (finding.verdict == Verdict::kFail)
      wrong.push_back(finding.id.name.get() + " " + std::string(name_of(finding.id.kind)));
  }
  return wrong;
}

}  // namespace

TEST_CASE("an element jumps where its gradient is about as small as eps, and no further than its gradient says") {
  // Adam's first step of a gradient g is lr g / (|g| + eps): of these two it is 0.09 and 0.18 of lr.
  CHECK(wrong_where_first_gradients_are(2e-9F, 4.4e-9F) == std::vector<std::string>{});
  // This gradient is within the norm's tolerance, and not within that of an element.
  CHECK(wrong_where_first_gradients_are(2e-9F, 4e-7F) ==
        std::vector<std::string>{"fc.weight main_grad", "norm.weight main_grad", "fc.weight param_delta",
                                 "norm.weight param_delta", "fc.weight param_after", "norm.weight param_after"});
}

TEST_CASE("a jump explains no more than one element of its size") {
  const BothRuns both = compared({}, {});
  const Matching matching = match(both.reference.alignment, both.candidate.alignment);
  std::vector<Difference> differences = compare(matching.pairs, {1, {}, false});
  const ToleranceFile tolerance = tight(1e-6, 1e-4);
  StepVerdicts verdicts = both.judged.verdicts;
  for (std::size_t i = 0; i < matching.pairs.size(); ++i) {
    const TensorId& id = matching.pairs[i].candidate->id;
    if (id.kind != Kind::kParamDelta) continue;
    differences[i].differing = 1;
    differences[i].difference_square = 1e-6 * differences[i].reference_square;
    verdicts.jumps[id] = 1.1e-3 * std::sqrt(differences[i].reference_square);
  }
  const auto fails = [&] {
    return judge_all(both.reference.alignment, matching, differences, &tolerance, {}, verdicts).totals.counts.fail;
  };
  CHECK(fails() == 0);
  for (auto& [id, jump] : verdicts.jumps) jump *= 0.8;
  CHECK(fails() == 4);
}
