#include "step/regression.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "judge/match.h"
#include "numeric/convert.h"
#include "step/judge_steps.h"
#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("step");

namespace {

constexpr std::int64_t kElements = 512;  // of each weight
constexpr const char* kUnknown = "mine.Lion";
constexpr std::int64_t kFew = 57;  // of these, those that move in c.weight in iteration 1
const std::vector<std::string> kNames = {"a.weight", "b.weight", "c.weight"};

double wave(std::int64_t i, int seed) {
  return std::sin(static_cast<double>(i + 1) * 0.7 + seed * 1.3) + 0.4 * std::sin(static_cast<double>(i * i) * 0.11);
}

// Returns what one element's update becomes; the arguments: name, iteration, element, value before, right update.
using Becomes = std::function<double(const std::string&, int, std::int64_t, double, double)>;

double right(const std::string&, int, std::int64_t, double, double update) { return update; }

// A run of an optimizer whose update is 1e-3 of a bounded function of its gradient, in two iterations. Its gradients
// are off by `rounding` of their size, by chance.
class UnknownRun {
 public:
  // `around`: what the parameters are near.
  explicit UnknownRun(int seed, double rounding = 1e-3, const Becomes& becomes = right, double around = 0.5)
      : around_(around) {
    trace_ = mesh_trace("tp=1", 1);
    trace_.run_id = "run" + std::to_string(seed);
    for (std::size_t n = 0; n < kNames.size(); ++n) {
      for (int iteration = 0; iteration < 2; ++iteration) add(n, iteration, seed, rounding, becomes);
    }
  }
  void say(const std::function<void(OptimizerStep&)>& says) {
    for (OptimizerStep& step : trace_.ranks[0].optimizer_steps) says(step);
  }
  AlignedTrace aligned() const { return align_trace(trace_, annotations("")); }

 private:
  void add(std::size_t n, int iteration, int seed, double rounding, const Becomes& becomes) {
    const int own = static_cast<int>(n) * 10 + iteration;
    std::vector<double> gradient, update, before;
    for (std::int64_t i = 0; i < kElements; ++i) {
      const double chance = seed == 0 ? 0 : std::sin(static_cast<double>(i) * 12.9898 + seed * 78.233 + own) * rounding;
      const double g = wave(i, own) + chance;
      const double p = static_cast<float>(around_ + 0.3 * wave(i, own + 5));
      gradient.push_back(g);
      before.push_back(p);
      const double moved = n == 2 && iteration == 1 && i >= kFew ? 0 : -1e-3 * std::tanh(3 * g);
      const double after = static_cast<float>(p + becomes(kNames[n], iteration, i, p, moved));
      update.push_back(after - p);
    }
    record(Kind::kMainGrad, n, iteration, gradient);
    record(Kind::kParam, n, iteration, before);
    record(Kind::kParamDelta, n, iteration, update);
    OptimizerStep step;
    step.iteration = iteration;
    step.parameters = {kNames[n]};
    step.optimizer = kUnknown;
    step.options = {{"lr", 1e-3}};
    step.calls = 1;
    step.clip_factor = 1;
    trace_.ranks[0].optimizer_steps.push_back(step);
  }

  void record(Kind kind, std::size_t n, int iteration, const std::vector<double>& values) {
    RankTrace& rank = trace_.ranks[0];
    auto& bytes = std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(rank.file))->bytes;
    Entry entry;
    entry.id = tensor_id(kind, kNames[n]);
    entry.id.iteration = iteration;
    entry.shape = {kElements};
    entry.order = rank.entries.size();
    entry.offset = bytes.size();
    entry.bytes = values.size() * sizeof(float);
    bytes.resize(bytes.size() + entry.bytes);
    narrow(values.data(), Dtype::kFloat32, kElements, bytes.data() + entry.offset);
    entry.checksum = entry.offset + static_cast<std::uint64_t>(kind);
    rank.entries.push_back(std::move(entry));
  }

  Trace trace_;
  double around_;
};

struct Measured {
  AlignedTrace run;
  Matching matching;
  std::vector<Difference> differences;

  Measured(const AlignedTrace& reference, AlignedTrace given)
      : run(std::move(given)), matching(match(reference.alignment, run.alignment)) {
    differences = compare(matching.pairs, {1, {}, false});
  }
};

ToleranceFile tolerances_of(const AlignedTrace& reference, double rounding, double around) {
  std::vector<RunDifferences> runs;
  std::vector<std::unique_ptr<Measured>> kept;
  for (int seed = 1; seed <= 3; ++seed) {
    kept.push_back(std::make_unique<Measured>(reference, UnknownRun(seed, rounding, right, around).aligned()));
    runs.push_back({"", kept.back()->matching.pairs, kept.back()->differences, {}});
  }
  ToleranceFile file;
  file.updates = measure_update_tolerances(reference, runs, 1);
  for (const std::string& name : kNames) {
    file.tensors[{Kind::kMainGrad, name}].allowed = 0.01;
    file.tensors[{Kind::kParamDelta, name}].allowed = 0.5;
  }
  return file;
}

// Against a reference whose tolerances are of runs that round gradients as the candidate does.
JudgedSteps judged(const UnknownRun& candidate, const std::function<void(ToleranceFile&)>& change = {},
                   double rounding = 1e-3, double around = 0.5) {
  const AlignedTrace reference = UnknownRun(0, rounding, right, around).aligned();
  ToleranceFile file = tolerances_of(reference, rounding, around);
  if (change) change(file);
  const Measured measured(reference, candidate.aligned());
  return judge_steps(reference, measured.run, {measured.matching, measured.differences, &file, 1});
}

std::vector<std::string> messages_of(const JudgedSteps& steps) {
  std::vector<std::string> messages;
  for (const Finding& finding : steps.verdicts.findings) messages.push_back(finding.message);
  return messages;
}

}  // namespace

TEST_CASE("the updates of an optimizer that is not known are judged by regression, and a right run's pass") {
  for (int seed = 4; seed < 40; ++seed) {
    const JudgedSteps steps = judged(UnknownRun(seed));
    CHECK(messages_of(steps).empty());
    REQUIRE(steps.coverage);
    CHECK(steps.coverage->updates_regressed == 6);
    CHECK(steps.coverage->updates_checked == 0);
    CHECK(steps.coverage->regressed_optimizers == std::set<std::string>{kUnknown});
    CHECK(steps.coverage->not_checkable.empty());
    CHECK(steps.coverage->worst_regressed > 0);
    CHECK(steps.coverage->worst_regressed <= 1);
  }
}

TEST_CASE("an element that a parameter rounds otherwise, as in no perturbed run, is no fault") {
  const double rounding = 4e-5, around = 1000;
  std::int64_t rounded_otherwise = 0;
  for (int seed = 4; seed < 40; ++seed) {
    const JudgedSteps steps = judged(UnknownRun(seed, rounding, right, around), {}, rounding, around);
    CHECK(messages_of(steps).empty());
    CHECK(steps.coverage->updates_regressed == 6);
    rounded_otherwise += steps.coverage->worst_regressed > 0;
  }
  CHECK(rounded_otherwise > 0);
  const Becomes larger = [](const std::string&, int, std::int64_t, double, double update) { return 1.2 * update; };
  CHECK(messages_of(judged(UnknownRun(4, rounding, larger, around), {}, rounding, around)).size() == 6);
}

TEST_CASE("an element of few whose update is next to nothing may stand still, one of the usual size may not") {
  int still = 0;
  const Becomes small_stand_still = [&](const std::string& name, int iteration, std::int64_t, double, double update) {
    const bool small = name == "c.weight" && update != 0 && std::abs(update) < 2e-4 && iteration == 1;
    still += small;
    return small ? 0 : update;
  };
  CHECK(messages_of(judged(UnknownRun(4, 1e-3, small_stand_still))).empty());
  CHECK(still > 0);
  const Becomes one_stands_still = [](const std::string& name, int iteration, std::int64_t i, double, double update) {
    return name == "c.weight" && iteration == 1 && i == 0 ? 0 : update;
  };
  const auto messages = messages_of(judged(UnknownRun(4, 1e-3, one_stands_still)));
  REQUIRE(messages.size() == 1);
  CHECK(has(messages[0], "c.weight"));
}

TEST_CASE("elements that go the other way are named, and what they may be") {
  const Becomes reversed = [](const std::string& name, int iteration, std::int64_t i, double, double update) {
    return name == "b.weight" && iteration == 1 && i == 7 ? -update : update;
  };
  const auto messages = messages_of(judged(UnknownRun(4, 1e-7, reversed), {}, 1e-7));
  REQUIRE(messages.size() == 1);
  CHECK(has(messages[0], "b.weight"));
  CHECK(has(messages[0], "1 of "));
  CHECK(has(messages[0], "goes the other way, and the others as the reference's"));
  const Becomes all = [](const std::string& name, int, std::int64_t, double, double update) {
    return name == "b.weight" ? -update : update;
  };
  for (const std::string& message : messages_of(judged(UnknownRun(4, 1e-7, all), {}, 1e-7))) {
    CHECK(has(message, "the update is -1.0"));
  }
}

TEST_CASE("updates that are all 1.01 times the reference's are found, over all tensors") {
  const Becomes larger = [](const std::string&, int, std::int64_t, double, double update) { return 1.01 * update; };
  const auto messages = messages_of(judged(UnknownRun(4, 1e-3, larger)));
  REQUIRE(messages.size() == 6);
  for (const std::string& message : messages)
    CHECK(has(message, "the update is 1.0100 times the reference's over 3 tensors"));
}

TEST_CASE("an update that is no multiple of the reference's is not called one") {
  const Becomes turned = [](const std::string& name, int, std::int64_t i, double, double update) {
    return name == "b.weight" ? (i % 2 == 0 ? 2.2 : 0.7) * update : update;
  };
  const auto messages = messages_of(judged(UnknownRun(4, 1e-3, turned)));
  REQUIRE(messages.size() == 2);
  for (const std::string& message : messages) {
    CHECK(has(message, "the update is no multiple of the reference's: 1."));
    CHECK(has(message, "times its size across"));
  }
}

TEST_CASE("weight decay that one run alone has is found, and told from another learning rate") {
  const Becomes decays = [](const std::string&, int, std::int64_t, double p, double update) {
    return update - 1e-5 * p;
  };
  const auto messages = messages_of(judged(UnknownRun(4, 1e-3, decays)));
  REQUIRE_FALSE(messages.empty());
  CHECK(has(messages[0], "times the parameter in it beside the reference's"));
  CHECK(has(messages[0], "as weight decay that is 0.01 larger gives at lr 0.001"));
}

TEST_CASE("a weight that is not updated, and half of one, are found on that weight alone") {
  const Becomes none = [](const std::string& name, int, std::int64_t, double, double update) {
    return name == "b.weight" ? 0 : update;
  };
  auto messages = messages_of(judged(UnknownRun(4, 1e-3, none)));
  REQUIRE(messages.size() == 2);
  for (const std::string& message : messages) {
    CHECK(has(message, "b.weight"));
    CHECK(has(message, "not updated; the reference updates it"));
  }
  const Becomes half = [](const std::string& name, int, std::int64_t i, double, double update) {
    return name == "b.weight" && i < kElements / 2 ? 0 : update;
  };
  messages = messages_of(judged(UnknownRun(4, 1e-3, half)));
  REQUIRE(messages.size() == 2);
  for (const std::string& message : messages) {
    CHECK(has(message, "b.weight"));
    CHECK(has(message, "elements that the reference updates are not updated, where gradients are above rounding"));
  }
}

TEST_CASE("updates of wrong gradients are not judged: they are no fault of the step") {
  const JudgedSteps steps = judged(UnknownRun(4, 0.2));
  CHECK(messages_of(steps).empty());
  REQUIRE(steps.coverage);
  CHECK(steps.coverage->updates_regressed == 0);
  CHECK(steps.coverage->not_checkable.at(
            "the rule of mine.Lion is not known, and by regression: its gradients are not the reference's") == 6);
}

TEST_CASE("what the tolerance file does not say, or says to be noise, judges nothing") {
  JudgedSteps steps = judged(UnknownRun(4), [](ToleranceFile& file) { file.updates.erase({kUnknown, 1}); });
  CHECK(steps.coverage->updates_regressed == 3);
  CHECK(steps.coverage->not_checkable.at("the rule of mine.Lion is not known, and by regression: the tolerance file "
                                         "does not say how far it may be from the reference's") == 3);
  steps = judged(UnknownRun(4), [](ToleranceFile& file) {
    file.updates[{kUnknown, 0}][static_cast<std::size_t>(UpdateMeasure::kTensor)] = {0.25, 0, 0};
  });
  CHECK(steps.coverage->updates_regressed == 3);
}

TEST_CASE("another learning rate that the optimizer states is named by that alone") {
  const Becomes larger = [](const std::string&, int, std::int64_t, double, double update) { return 1.2 * update; };
  UnknownRun candidate(4, 1e-3, larger);
  candidate.say([](OptimizerStep& step) { step.options["lr"] = 1.2e-3; });
  const JudgedSteps steps = judged(candidate);
  REQUIRE(steps.verdicts.findings.size() == 6);
  for (const Finding& finding : steps.verdicts.findings) CHECK(finding.reason == Reason::kOptionsDiffer);
}

TEST_SUITE_END();
