#include <doctest/doctest.h>

#include <cmath>

#include "support/products.h"

namespace {

using namespace ttrace;
using namespace ttrace::abft;

std::vector<LineStatistics> rows_of(const MatrixView& matrix) {
  return read_lines(matrix, {.depth = Depth::kNorms}).rows;
}

// A row of A and a B, by hand: A = [1 3], B = [1 2 3; -1 0 1].
struct Hand {
  std::vector<double> a = {1, 3}, b = {1, 2, 3, -1, 0, 1};
  LeftStatistics left = left_statistics(rows_of(row_major(a.data(), Dtype::kFloat64, 1, 2)).front());
  RightStatistics right = right_statistics(rows_of(row_major(b.data(), Dtype::kFloat64, 2, 3)), 3);

  double allowed(ThresholdOptions options, Dtype dtype = Dtype::kFloat64) const {
    return threshold(options, {dtype, dtype}, left, right, 4);
  }
};

TEST_SUITE("abft") {
  TEST_CASE("the statistics of a row by hand") {
    const Hand hand;
    CHECK(hand.left.mean == 2);
    CHECK(hand.left.variance == 1);  // (3 - 2)(2 - 1)
    CHECK(hand.left.magnitude == 3);
    CHECK(hand.right.mean == 2);  // |2| + |0|
    CHECK(hand.right.mean_square == 4);
    CHECK(hand.right.variance == 2);  // (3 - 2)(2 - 1) + (1 - 0)(0 + 1)
    CHECK(hand.right.largest_absolute == 6);
  }

  TEST_CASE("the four thresholds by hand") {
    const Hand hand;
    // Algorithm 1: 3 2 2 + 2.5 sqrt(3 4 2 + 9 1 4) + 2.5 sqrt(3) 1 sqrt(2)
    const double variance = 12 + 2.5 * std::sqrt(60) + 2.5 * std::sqrt(6);
    CHECK(hand.allowed({.e_max = 0.01}) == doctest::Approx(0.01 * variance));
    CHECK(hand.allowed({}, Dtype::kBFloat16) == doctest::Approx(8e-3 * variance));
    // Equation 26 with n = 3, t = 8, y = 3 * 6
    const double sigma = std::sqrt((3 * 4 * 3.5 + 6) / 24) / 256 * 18;
    CHECK(hand.allowed({.method = ThresholdMethod::kProbabilistic}, Dtype::kBFloat16) == doctest::Approx(3 * sigma));
    CHECK(hand.allowed({.method = ThresholdMethod::kProbabilistic, .largest = 21}, Dtype::kBFloat16) ==
          doctest::Approx(3 * sigma * 21 / 18));
    // u |a| ((2 + 6 - 2) sqrt(3) |B| + 2 |B r|)
    const double simplified = std::sqrt(10) * (6 * std::sqrt(3) * 4 + 2 * 6) / 256;
    CHECK(hand.allowed({.method = ThresholdMethod::kSimplified}, Dtype::kBFloat16) == doctest::Approx(simplified));
    // Equation 6: k eps |A| |B|
    CHECK(hand.allowed({.method = ThresholdMethod::kNorm}, Dtype::kBFloat16) == doctest::Approx(2.0 / 128 * 4 * 6));
  }

  TEST_CASE("e_max of the library covers that of each platform of the paper and what CPUs were measured to need") {
    for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
      for (std::int64_t length = 1; length <= 16384; length *= 4) {
        const double e_max = default_relative_error({dtype, dtype}, Fp32Products::kFull, length);
        for (const Platform platform : {Platform::kCpu, Platform::kGpu, Platform::kNpu}) {
          CHECK(e_max >= largest_relative_error(platform, {dtype, dtype}, length));
        }
      }
    }
    // Units of roundoff that right products of constant and of positive operands took.
    CHECK(default_relative_error({Dtype::kFloat32, Dtype::kFloat32}, Fp32Products::kFull, 16384) > 646 * 0x1p-24);
    CHECK(default_relative_error({Dtype::kFloat32, Dtype::kFloat32}, Fp32Products::kFull, 4096) > 488 * 0x1p-24);
    CHECK(default_relative_error({Dtype::kFloat64, Dtype::kFloat64}, Fp32Products::kFull, 256) > 20 * 0x1p-53);
  }

  TEST_CASE("products of fp32 have the precision that the program says, or else the coarsest of its device") {
    CHECK(fp32_products_of("cuda", "highest") == Fp32Products::kFull);
    CHECK(fp32_products_of("cuda", "high") == Fp32Products::kTf32);
    CHECK(fp32_products_of("cpu", "medium") == Fp32Products::kBFloat16);
    CHECK(fp32_products_of("cpu", "") == Fp32Products::kFull);
    CHECK(fp32_products_of("cuda", "") == Fp32Products::kTf32);
    CHECK(fp32_products_of("", "") == Fp32Products::kBFloat16);
    const auto e_max = [](Dtype dtype, Fp32Products products) {
      return default_relative_error({dtype, dtype}, products, 64);
    };
    CHECK(e_max(Dtype::kFloat32, Fp32Products::kTf32) > 0x1p-9);
    CHECK(e_max(Dtype::kFloat32, Fp32Products::kBFloat16) > 0x1p-6);
    CHECK(e_max(Dtype::kFloat64, Fp32Products::kBFloat16) == 48 * 0x1p-53);  // fp32's switch says nothing of fp64
  }

  TEST_CASE("e_max is that of the accumulator online and of C's dtype offline") {
    const auto e_max = [](Dtype operand, Dtype output, Platform platform = Platform::kCpu) {
      return largest_relative_error(platform, {operand, output}, 1024);
    };
    CHECK(e_max(Dtype::kFloat64, Dtype::kFloat64) == 6e-16);
    CHECK(e_max(Dtype::kFloat32, Dtype::kFloat32) == 4e-7);
    CHECK(e_max(Dtype::kBFloat16, Dtype::kBFloat16) == 8e-3);
    CHECK(e_max(Dtype::kFloat16, Dtype::kFloat16) == 1e-3);
    CHECK(e_max(Dtype::kFloat8E4M3, Dtype::kFloat16) == 1e-3);
    CHECK(e_max(Dtype::kBFloat16, Dtype::kFloat32) == 1e-6);
    CHECK(e_max(Dtype::kFloat64, Dtype::kFloat64, Platform::kGpu) == doctest::Approx(5.7e-16));
    CHECK(e_max(Dtype::kFloat32, Dtype::kFloat32, Platform::kNpu) == doctest::Approx(2e-6));
  }

  TEST_CASE("the norm bound refuses dtypes with too few digits") {
    Random random(3);
    const RandomProduct product =
        random_product({4, 64, 4}, Dtype::kBFloat16, Dtype::kBFloat16, Distribution::kUniform, random);
    VerifyOptions options;
    options.threshold.method = ThresholdMethod::kNorm;
    const Verification verification = verify(product.product(), options);
    CHECK(verification.outcome == Outcome::kNotCheckable);
    CHECK(verification.reason == "the norm bound needs k u <= 0.01: too few digits for so long a sum");
  }

  // V-ABFT's assumption breaks here: every element of C is as large as it can be.
  TEST_CASE(
      "operands that are one matrix exceed what V-ABFT expects of operands, and not what C's own rounding may be") {
    const std::int64_t k = 4096;
    RandomProduct product{
        zeros(Dtype::kBFloat16, 1, k), zeros(Dtype::kBFloat16, k, 1), zeros(Dtype::kBFloat16, 1, 1), {}};
    int exceeded = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Random random(seed);
      fill(product.a, Distribution::kUniform, 1, random);
      for (std::int64_t i = 0; i < k; ++i) set(product.b, i, 0, element(product.a.view, 0, i));
      multiply(product);
      exceeded += check_lines(product.product()).rows.front().disagrees() ? 1 : 0;
      CHECK(verify(product.product()).outcome == Outcome::kVerified);
      VerifyOptions options;
      options.threshold.method = ThresholdMethod::kSimplified;
      CHECK(verify(product.product(), options).outcome == Outcome::kVerified);
    }
    CHECK(exceeded > 0);
  }
}

}  // namespace
