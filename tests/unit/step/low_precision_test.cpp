#include "step/low_precision.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "numeric/convert.h"

using namespace ttrace;

TEST_SUITE_BEGIN("step");

namespace {

constexpr std::size_t kHalfElements = 20000;

double wave(std::size_t i, int seed) {
  return std::sin(static_cast<double>(i + 1) * 0.7 + seed * 1.3) * std::exp(-0.3 * static_cast<double>(i % 11));
}

double to_dtype(double value, Dtype dtype) {
  std::array<std::byte, 8> bytes{};
  narrow(&value, dtype, 1, bytes.data());
  widen(bytes.data(), dtype, 1, &value);
  return value;
}

UpdateRule rule_with_decay(UpdateFamily family) {
  UpdateRule one;
  one.family = family;
  one.lr = family == UpdateFamily::kAdam ? 1e-3 : 0.1;
  one.weight_decay = 0.1, one.beta1 = 0.9, one.beta2 = 0.95, one.eps = 1e-5;
  one.decoupled = family == UpdateFamily::kAdam;
  one.momentum = family == UpdateFamily::kSgd ? 0.9 : 0;
  return one;
}

// A third step as PyTorch takes it, written out operation by operation.
struct HalfRun {
  std::vector<double> value, gradient, first, second, delta;

  HalfRun(UpdateFamily family, Dtype dtype, StepArithmetic arithmetic, double times) {
    const auto r = [&](double x) { return to_dtype(x, dtype); };
    const auto op = [&](double x) { return arithmetic.rounds_each_operation ? r(x) : x; };
    const auto added = [&](double x) { return arithmetic.rounds_added_scalars ? r(x) : x; };
    const auto multiplied = [&](double x) { return arithmetic.rounds_factors ? r(x) : x; };
    for (std::size_t i = 0; i < kHalfElements; ++i) {
      const double p = r(wave(i, 1) / 20), g = r(wave(i, 2) / 50), m = r(wave(i, 3) / 60);
      const double v = r(wave(i, 4) * wave(i, 4) / 2000 + 1e-6);
      double after;
      if (family == UpdateFamily::kAdam) {
        const double mean = op(m + (1 - 0.9) * (g - m)), square = op(op(v * multiplied(0.95)) + (1 - 0.95) * g * g);
        const double denominator = op(op(op(std::sqrt(square)) / std::sqrt(1 - std::pow(0.95, 3))) + added(1e-5));
        after = r(op(p * multiplied(1 - 1e-4)) - times * 1e-3 / (1 - std::pow(0.9, 3)) * mean / denominator);
      } else {
        const double decayed = op(g + added(0.1) * p), buffer = op(op(m * multiplied(0.9)) + decayed);
        after = r(p - times * added(0.1) * buffer);
      }
      value.push_back(p), gradient.push_back(g), first.push_back(m), second.push_back(v);
      delta.push_back(after - p);
    }
  }

  MovesByArithmetic moves(UpdateFamily family, Dtype dtype, double factor = 1) const {
    MovesByArithmetic sums{};
    add_moves(rule_with_decay(family), 3, dtype, {value, gradient, first, second, second, delta}, factor, sums);
    return sums;
  }
};

}  // namespace

TEST_CASE("a step in the parameter's own dtype is right to the bit, and one that is 1 % off is not") {
  const std::array families = {UpdateFamily::kAdam, UpdateFamily::kSgd};
  for (const UpdateFamily family : families) {
    for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat16}) {
      for (std::size_t a = 0; a < kStepArithmetics.size(); ++a) {
        CAPTURE(a);
        CAPTURE(static_cast<int>(family));
        CAPTURE(static_cast<int>(dtype));
        const MoveSums right = HalfRun(family, dtype, kStepArithmetics[a], 1).moves(family, dtype)[a];
        CHECK(right.square == 0);
        CHECK(right.steps > 100);
        for (const double times : {0.99, 1.01}) {
          const HalfRun run(family, dtype, kStepArithmetics[a], times);
          const MovesByArithmetic wrong = run.moves(family, dtype);
          CHECK(wrong[best_of(wrong)].excess() > kMostExcess);
          CHECK((wrong[a].moved > 0) == (times > 1));
          CHECK(run.moves(family, dtype, times)[a].square == 0);
        }
      }
    }
  }
}

TEST_CASE("a step that does not move anything says nothing of its size") {
  HalfRun run(UpdateFamily::kAdam, Dtype::kBFloat16, kStepArithmetics[0], 1);
  for (double& each : run.gradient) each = 0;
  for (double& each : run.first) each = 0;
  for (double& each : run.delta) each = 0;
  for (double& each : run.value) each = 1;  // whose decay is lost in rounding
  const MovesByArithmetic moves = run.moves(UpdateFamily::kAdam, Dtype::kBFloat16);
  CHECK(moves[best_of(moves)].excess() == 0);
  CHECK(moves[0].steps == 0);
}

TEST_SUITE_END();
