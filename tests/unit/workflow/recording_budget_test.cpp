#include "workflow/recording_budget.h"

#include <doctest/doctest.h>

using namespace ttrace;

TEST_SUITE_BEGIN("workflow");

namespace {

// Adds iterations of a program whose step takes `step` seconds, and whose recorded ones take `recorded` more.
bool add(RecordingBudget& budget, std::int32_t number, double recorded, double step) {
  const double recording = recorded * number;
  const std::int32_t iteration = number * budget.every();
  return budget.add({iteration, recording, iteration * step + recording});
}

}  // namespace

TEST_CASE("Recording that keeps to its budget goes on as was asked for") {
  RecordingBudget budget(100, 0.02);
  for (std::int32_t number = 0; number < 5; ++number) CHECK_FALSE(add(budget, number, 0.1, 0.1));
  CHECK(budget.every() == 100);
  CHECK(budget.cost()->share == doctest::Approx(0.1 / 10.1));
}

TEST_CASE("Recording that takes more than its budget becomes rarer, by what it takes") {
  RecordingBudget budget(100, 0.02);
  CHECK_FALSE(add(budget, 0, 1.0, 0.1));
  CHECK(add(budget, 1, 1.0, 0.1));
  // Of 613 steps of 0.1 s, and 1.25 recorded iterations of 1 s among them, these take 2 %.
  CHECK(budget.every() == 613);
}

TEST_CASE("Recording that has become cheaper comes back to what was asked for, and no further") {
  RecordingBudget budget(10, 0.02);
  budget.add({0, 0, 0});
  CHECK(budget.add({10, 1, 2}));
  const std::int32_t fewer = budget.every();
  CHECK(fewer > 10);
  double at = 2;
  bool changed = false;
  for (std::int32_t iteration = 20; iteration < 80; iteration += 10) {
    at += 10;
    changed = budget.add({iteration, 1, at}) || changed;
  }
  CHECK(changed);
  CHECK(budget.every() == 10);
}

TEST_CASE("What recording costs in every step, no number of them makes less: the number has an end") {
  RecordingBudget budget(10, 0.001);
  budget.add({0, 0, 0});
  CHECK(budget.add({10, 1, 1.0001}));
  CHECK(budget.every() == 640);
}

TEST_SUITE_END();
