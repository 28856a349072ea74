#include "tolerance/quantiles.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace ttrace;

TEST_SUITE_BEGIN("tolerance");

// The values are those of printed tables.
TEST_CASE("quantiles are those of the tables") {
  CHECK(normal_quantile(0.025) == doctest::Approx(1.959964).epsilon(1e-6));
  CHECK(normal_quantile(1e-9) == doctest::Approx(5.997807).epsilon(1e-6));
  CHECK(student_quantile(0.05, 1) == doctest::Approx(12.7062).epsilon(1e-5));
  CHECK(student_quantile(0.01, 10) == doctest::Approx(3.16927).epsilon(1e-5));
  CHECK(student_quantile(0.001, 120) == doctest::Approx(3.37345).epsilon(1e-5));
  CHECK(fisher_quantile(0.05, 5, 10) == doctest::Approx(3.32583).epsilon(1e-5));
  CHECK(fisher_quantile(0.01, 20, 60) == doctest::Approx(2.19781).epsilon(1e-5));
}

TEST_CASE("far tails are those of closed forms") {
  // P(F > x) = (1 + 2 x / m)^(-m / 2) with 2 and m degrees of freedom.
  for (const double m : {3.0, 12.0, 300.0}) {
    CHECK(fisher_quantile(1e-8, 2, m) == doctest::Approx(m / 2 * (std::pow(1e-8, -2 / m) - 1)).epsilon(1e-9));
  }
  CHECK(student_quantile(1e-8, 1) == doctest::Approx(std::tan(std::acos(-1.0) / 2 * (1 - 1e-8))).epsilon(1e-6));
  CHECK(student_quantile(1e-8, 1e6) == doctest::Approx(normal_quantile(5e-9)).epsilon(1e-4));
}

TEST_SUITE_END();
