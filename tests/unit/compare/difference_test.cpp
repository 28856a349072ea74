#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/finding.h"

namespace {

using ttrace::Difference;

Difference from_sums(double reference, double candidate, double difference, double dot) {
  Difference d;
  d.reference_square = reference;
  d.candidate_square = candidate;
  d.difference_square = difference;
  d.along = dot - reference;
  d.max_abs = difference > 0 ? 1 : 0;
  return d;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST_SUITE("compare") {
  TEST_CASE("rel_err is the norm of the difference over the reference's") {
    CHECK(from_sums(4, 4, 1, 3.5).rel_err() == 0.5);
    CHECK(from_sums(0, 0, 0, 0).rel_err() == 0);
    CHECK(from_sums(0, 1, 1, 0).rel_err() == kInfinity);
  }

  TEST_CASE("sums that overflowed or vanished never come out as a small error") {
    CHECK(from_sums(kInfinity, kInfinity, kInfinity, kInfinity).rel_err() == kInfinity);
    CHECK(from_sums(kInfinity, 1e300, 1e300, 0).rel_err() == kInfinity);
    CHECK(from_sums(kInfinity, kInfinity, 0, kInfinity).rel_err() == 0);  // equal to the last element
    Difference vanished = from_sums(0, 0, 0, 0);
    vanished.max_abs = 1e-200;
    CHECK(vanished.rel_err() == kInfinity);
  }

  TEST_CASE("the angle survives where the direct form has lost all digits") {
    // B = A + D with D orthogonal to A and 1e-9 of its length: 1 - cos = 5e-19.
    CHECK(from_sums(1, 1 + 1e-18, 1e-18, 1).one_minus_cosine() == doctest::Approx(5e-19).epsilon(1e-6));
    CHECK(from_sums(1, 1, 4, -1).one_minus_cosine() == 2);
    CHECK(from_sums(0, 0, 0, 0).one_minus_cosine() == 0);
    CHECK(from_sums(1, 0, 1, 0).one_minus_cosine() == 1);
  }

  TEST_CASE("a uniform factor is found and leaves nothing unexplained") {
    const Difference half = from_sums(4, 1, 1, 2);
    CHECK(half.uniform_factor() == 0.5);
    CHECK(half.uniform_factor_residual() == 0);
    const Difference orthogonal = from_sums(1, 1, 2, 0);
    CHECK(orthogonal.uniform_factor() == 0);
    CHECK(orthogonal.uniform_factor_residual() == 1);
    CHECK(std::isnan(from_sums(0, 1, 1, 0).uniform_factor()));
    CHECK(from_sums(0, 1, 1, 0).uniform_factor_residual() == 1);
  }

  TEST_CASE("the scale is signed, and leaves the residual") {
    CHECK(from_sums(4, 1, 1, 2).scale_err() == -0.5);
    CHECK(from_sums(4, 1, 1, 2).residual_err() == 0);
    CHECK(from_sums(1, 1.25, 0.25, 1).scale_err() == 0);
    CHECK(from_sums(1, 1.25, 0.25, 1).residual_err() == 0.5);
    CHECK(from_sums(4, 4, 0, 4).scale_err() == 0);
    CHECK(from_sums(0, 1, 1, 0).scale_err() == kInfinity);
    CHECK(from_sums(kInfinity, kInfinity, 1, kInfinity).scale_err() == kInfinity);
  }

  TEST_CASE("rows and elements are relative to typical ones") {
    Difference d = from_sums(400, 400, 4, 398);
    d.elements = 100;
    d.rows = 25;
    d.worst_row = 7;
    d.row_square = 4;
    CHECK(d.row_err() == 0.5);
    CHECK(d.element_err() == 0.5);
    d.rows = 0;
    CHECK(d.row_err() == 0);
    Difference zero = from_sums(0, 1, 1, 0);
    zero.elements = 4;
    CHECK(zero.element_err() == kInfinity);
  }

  TEST_CASE("copies are judged by their norm") {
    Difference d = from_sums(4, 4, 0, 4);
    CHECK(d.replica_rel_err() == 0);
    d.replica_square = 1;
    CHECK(d.replica_rel_err() == 0.5);
    d.candidate_square = 0;
    CHECK(d.replica_rel_err() == kInfinity);
  }
}

}  // namespace
