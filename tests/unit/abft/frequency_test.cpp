#include "ttrace/abft/frequency.h"

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace ttrace::abft;

// One operation each; only near-INF errors, at 1e-3 a flop.
constexpr ErrorTypes kRates = {0, 0, 1e-3};
ProtectedSection section(double flops, double vulnerability, double overhead) {
  return {{{flops, {1, 1, vulnerability}}}, overhead};
}

TEST_SUITE("abft") {
  TEST_CASE("loss and efficiency by hand") {
    CHECK(error_probability(1e-3, 100, 0) == doctest::Approx(std::exp(-0.1)));
    CHECK(error_probability(1e-3, 100, 2) == doctest::Approx(std::exp(-0.1) * 0.005));
    // 0.1 errors: one with 0.0904837, more with 1 - 0.9048374 - 0.0904837
    const ProtectedSection s = section(100, 0.5, 4);
    CHECK(loss(s, kRates, 1) == doctest::Approx(0.0046788).epsilon(1e-4));
    CHECK(loss(s, kRates, 0) == doctest::Approx(0.0046788 + 0.0452419).epsilon(1e-4));
    CHECK(loss(s, kRates, 0.25) == doctest::Approx(0.0046788 + 0.75 * 0.0452419).epsilon(1e-4));
    CHECK(efficiency(s, kRates) == doctest::Approx(0.0452419 / 4).epsilon(1e-4));
  }

  TEST_CASE("errors in several operations: the one must be the only one") {
    const ProtectedSection s = {{{100, {0, 0, 1}}, {200, {0, 0, 0.25}}}, 1};
    // e^-0.3 (0.1 1 + 0.2 0.25)
    CHECK(loss(s, kRates, 0) - loss(s, kRates, 1) == doctest::Approx(std::exp(-0.3) * 0.15));
    CHECK(loss({{}, 1}, kRates, 0) == 0);
  }

  TEST_CASE("losses too small for 1 - FC keep their digits") {
    const ProtectedSection s = section(1, 0.5, 1);
    const ErrorTypes rates = {0, 0, 2e-12};
    CHECK(loss(s, rates, 0) == doctest::Approx(1e-12).epsilon(1e-9));
    CHECK(loss(s, rates, 1) == doctest::Approx(2e-24).epsilon(1e-9));
  }

  TEST_CASE("the most efficient section is taken whole, the last one as far as it is needed") {
    // Losses without checks, in units of 1e-12: 1, 4, 2; efficiencies 1, 2, 4.
    const ErrorTypes rates = {0, 0, 1e-12};
    const std::vector<ProtectedSection> sections = {section(1, 1, 1), section(4, 1, 2), section(2, 1, 0.5)};
    Frequencies result = optimise(sections, rates, 3e-12);
    CHECK(result.frequencies[0] == 0);
    CHECK(result.frequencies[1] == doctest::Approx(0.5));
    CHECK(result.frequencies[2] == 1);
    CHECK(result.overhead == doctest::Approx(1.5));
    CHECK(result.loss == doctest::Approx(3e-12));
    CHECK(result.reached);

    result = optimise(sections, rates, 7.1e-12);  // the model is reliable enough as it is
    CHECK(result.frequencies == std::vector<double>{0, 0, 0});
    CHECK(result.reached);

    result = optimise(sections, rates, 1e-30);
    CHECK(result.frequencies == std::vector<double>{1, 1, 1});
    CHECK(!result.reached);
  }

  TEST_CASE("a section whose errors do no harm is never checked") {
    const std::vector<ProtectedSection> sections = {section(10, 0, 1), section(10, 1, 1)};
    const Frequencies result = optimise(sections, {0, 0, 1e-9}, 1e-10);
    CHECK(result.frequencies[0] == 0);
    CHECK(result.frequencies[1] > 0.98);
    CHECK(result.reached);
  }
}

}  // namespace
