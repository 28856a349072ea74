// Tests that a function which is applied once more than in the reference, or once less, is named, and that nothing near it
// is.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "merge/values.h"
#include "support/root_causes.h"
#include "support/trace_builder.h"

using namespace ttrace;
using namespace ttrace::test;

TEST_SUITE_BEGIN("diagnose");

namespace {

constexpr std::size_t kActivationRows = 12, kActivationWidth = 6;

Values drawn_activations(std::uint32_t seed, double size = 1.5) {
  std::mt19937 random(seed);
  std::normal_distribution<double> value(0, size);
  Values values(kActivationRows * kActivationWidth);
  for (double& each : values) each = static_cast<float>(value(random));
  return values;
}

template <typename Function>
Values mapped(Values values, const Function& function) {
  for (double& value : values) value = function(value);
  return values;
}

Values shares_of(const Values& scores, double temperature = 1) {
  Values shares = mapped(scores, [&](double score) { return std::exp(score / temperature); });
  for (std::size_t row = 0; row < kActivationRows; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < kActivationWidth; ++j) sum += shares[row * kActivationWidth + j];
    for (std::size_t j = 0; j < kActivationWidth; ++j) shares[row * kActivationWidth + j] /= sum;
  }
  return shares;
}

RootCause root_of_activation(const Values& right, const Values& wrong, double allowed = 1e-5,
                             Kind kind = Kind::kOutput) {
  const auto trace = [&](const std::string& run, const Values& values) {
    TensorSpec spec;
    spec.id = {.microbatch = 0, .kind = kind, .name = "layer"};
    spec.shape = {3, kActivationRows / 3, kActivationWidth};
    spec.values = [values](std::int32_t, std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
    return TraceBuilder().axes("").run_id(run).tensor(spec).read();
  };
  const std::vector<RootCause> roots =
      roots_between(trace("reference", right), trace("candidate", wrong), "", allowing(allowed));
  REQUIRE(!roots.empty());
  return roots[0];
}

void check_function(const RootCause& root, const std::string& words) {
  CHECK_MESSAGE(root.diagnosis == Cause::kOtherFunction, root.sentence);
  CHECK_MESSAGE(has(root.sentence, words), root.sentence);
}

void check_no_function(const RootCause& root) { CHECK_MESSAGE(root.diagnosis != Cause::kOtherFunction, root.sentence); }

}  // namespace

TEST_CASE("a softmax that is applied once more than in the reference, twice, or once less") {
  const Values scores = drawn_activations(1), shares = shares_of(scores);
  check_function(root_of_activation(scores, shares),
                 "it is the softmax over the last dimension of the reference's value: the softmax is applied once more "
                 "than there");
  check_function(root_of_activation(shares, shares_of(shares)), "which is one already: the softmax is applied twice");
  check_function(root_of_activation(shares, scores),
                 "the reference's value is the softmax over the last dimension of it: the softmax is applied once less "
                 "than there");
  const Values logs = mapped(shares, [](double share) { return std::log(share); });
  check_function(root_of_activation(scores, logs), "it is the log-softmax over the last dimension");
  check_function(root_of_activation(logs, shares), "which is the same here");
}

TEST_CASE("a softmax of other scores, or of a gradient, is not said to be one of the reference's") {
  const Values scores = drawn_activations(1);
  check_no_function(root_of_activation(scores, shares_of(scores, 1.01)));
  check_no_function(root_of_activation(scores, shares_of(drawn_activations(2))));
  Values other_row = shares_of(scores);
  for (std::size_t j = 0; j < kActivationWidth; ++j) other_row[j] = 1.0 / kActivationWidth;
  check_no_function(root_of_activation(scores, other_row));
  check_no_function(root_of_activation(scores, shares_of(scores), 1e-5, Kind::kGradOutput));
}

TEST_CASE("an activation that is applied once more than in the reference, or once less") {
  struct Activation {
    std::string name;
    double (*function)(double);
  };
  const Values values = drawn_activations(3);
  for (const Activation& each :
       {Activation{"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
        Activation{"tanh", [](double x) { return std::tanh(x); }},
        Activation{"ReLU", [](double x) { return x > 0 ? x : 0; }},
        Activation{"GELU", [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }},
        Activation{"GELU (by tanh)",
                   [](double x) {
                     return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
                   }},
        Activation{"SiLU", [](double x) { return x / (1 + std::exp(-x)); }},
        Activation{"softplus", [](double x) { return std::log(1 + std::exp(x)); }},
        Activation{"exponential", [](double x) { return std::exp(x); }}}) {
    const Values applied = mapped(values, each.function);
    check_function(root_of_activation(values, applied),
                   "it is the " + each.name + " of the reference's value: the " + each.name + " is applied once more");
    check_function(root_of_activation(applied, values),
                   "the reference's value is the " + each.name + " of it: the " + each.name + " is applied once less");
  }
}

TEST_CASE("an activation like those that are known, or of values so small that any is a line, is not called one") {
  const Values values = drawn_activations(4), small = drawn_activations(5, 1e-4);
  check_no_function(
      root_of_activation(values, mapped(values, [](double x) { return x / (1 + std::exp(-1.702 * x)); })));
  check_no_function(root_of_activation(values, mapped(values, [](double x) { return x > 0 ? x : 0.01 * x; })));
  check_no_function(root_of_activation(values, mapped(values, [](double x) { return x / (1 + std::abs(x)); })));
  const auto line = [](double x) { return 0.5 + x / 4; };  // what a sigmoid is there, and a constant
  check_no_function(root_of_activation(small, mapped(small, line), 1e-2));
  check_no_function(root_of_activation(small, Values(small.size(), 0.5), 1e-2));
}

TEST_SUITE_END();
