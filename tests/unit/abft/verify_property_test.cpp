// Random products of every dtype, shape and layout: right ones are verified, wrong ones found.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "numeric/convert.h"
#include "reproductions/inject.h"
#include "support/products.h"

namespace {

using namespace ttrace;
using namespace ttrace::abft;

struct Precision {
  Dtype operand, output;
};
constexpr Precision kPrecisions[] = {
    {Dtype::kFloat64, Dtype::kFloat64},   {Dtype::kFloat32, Dtype::kFloat32},    {Dtype::kFloat16, Dtype::kFloat16},
    {Dtype::kBFloat16, Dtype::kBFloat16}, {Dtype::kFloat8E4M3, Dtype::kFloat16}, {Dtype::kFloat8E5M2, Dtype::kBFloat16},
    {Dtype::kBFloat16, Dtype::kFloat32},  {Dtype::kFloat16, Dtype::kFloat32}};  // the last two: online

Shape3 random_shape(Random& random) {
  const auto size = [&] { return 1 + random.below(random.below(4) == 0 ? 70 : 12); };
  return {size(), size(), size()};
}

// Calls `test(product, words)` for `count` products.
template <class Test>
void for_each_product(std::uint64_t seed, int count, Test test) {
  Random random(seed);
  for (int i = 0; i < count; ++i) {
    const Precision precision = kPrecisions[random.below(std::size(kPrecisions))];
    const Distribution distribution = kDistributions[random.below(std::size(kDistributions))];
    const Shape3 shape = random_shape(random);
    RandomProduct product = random_product(shape, precision.operand, precision.output, distribution, random);
    test(product, random,
         fmt::format("case {}: {} {} {}, {} to {}, distribution {}", i, shape.m, shape.k, shape.n,
                     name_of(precision.operand), name_of(precision.output), static_cast<int>(distribution)));
  }
}

double spacing(double value, Dtype dtype) {
  return std::max(std::fabs(value) * epsilon_of(dtype), dtype == Dtype::kFloat16 ? 0x1p-24 : 0x1p-149);
}

TEST_SUITE("abft") {
  TEST_CASE("a right product is verified, by every method") {
    int checked = 0, beyond_three_sigma = 0;
    for_each_product(1, 4000, [&](const RandomProduct& product, Random& random, const std::string& words) {
      for (const ThresholdMethod method :
           {ThresholdMethod::kVariance, ThresholdMethod::kProbabilistic, ThresholdMethod::kSimplified}) {
        VerifyOptions options;
        options.threshold.method = method;
        options.block = random.below(2) * (1 + random.below(20));
        const Verification verification = verify(product.product(), options);
        ++checked;
        if (verification.outcome == Outcome::kVerified) continue;
        // A-ABFT allows three standard deviations of one of the two sums; in fp64 both round alike.
        if (method == ThresholdMethod::kProbabilistic && product.c.view.dtype == Dtype::kFloat64) {
          ++beyond_three_sigma;
          continue;
        }
        const Fault fault = verification.faults.empty() ? Fault{} : verification.faults.front();
        FAIL_CHECK(words << ", method " << static_cast<int>(method) << ", block " << options.block << ": "
                         << verification.reason << " row " << fault.row << " col " << fault.col << " D1 "
                         << fault.difference << " allowed " << fault.threshold << " value " << fault.value
                         << " corrected " << fault.corrected);
      }
    });
    CHECK(checked == 12000);
    CHECK(beyond_three_sigma <= 3);
  }

  TEST_CASE("a fault above the threshold of its row or column is found, placed and corrected") {
    int above = 0, placed = 0;
    for_each_product(2, 4000, [&](RandomProduct& product, Random& random, const std::string& words) {
      const auto kind = static_cast<reproductions::FaultKind>(random.below(5));
      const reproductions::Injection fault = inject(product.c.writable(), kind, random.bits());
      const Product faulty = product.product();
      const LineCheck row = check_lines(faulty).rows[static_cast<std::size_t>(fault.row)];
      const LineCheck col = check_lines(transposed(faulty)).rows[static_cast<std::size_t>(fault.col)];
      const double size = std::fabs(fault.after - fault.before);
      // Both thresholds beside the rounding that is there already.
      if (std::isfinite(size) && !(size > 2 * row.threshold || size > 2 * col.threshold)) return;
      ++above;
      const Verification verification = verify(faulty);
      if (verification.outcome != Outcome::kFaulty) {
        FAIL_CHECK(words << ": " << fault.before << " became " << fault.after << " and was not found; allowed "
                         << row.threshold << " and " << col.threshold << " " << verification.reason);
        return;
      }
      const Fault& found = verification.faults.front();
      if (!found.located()) return;
      ++placed;
      CHECK_MESSAGE((found.row == fault.row && found.col == fault.col), words);
      CHECK_MESSAGE(verification.faults.size() == 1, words);
      correct(product, verification);
      const double after = element(product.c.view, fault.row, fault.col);
      CHECK_MESSAGE(
          std::fabs(after - fault.before) <= std::max(row.threshold, 2 * spacing(fault.before, product.c.view.dtype)),
          words);
      CHECK_MESSAGE(verify(product.product()).outcome == Outcome::kVerified, words);
    });
    CHECK(above > 2000);
    CHECK(placed >= 0.99 * above);
  }

  TEST_CASE("of a fault little above the threshold element and right value are named, by sums as well") {
    Random random(3);
    int found = 0, placed = 0, valued = 0;
    for (int i = 0; i < 400; ++i) {
      const Dtype dtype = i % 2 == 0 ? Dtype::kBFloat16 : Dtype::kFloat32;
      RandomProduct product = random_product({24, 64, 96}, dtype, dtype, Distribution::kNearZeroMean, random);
      multiply(product);
      const std::int64_t row = random.below(24), col = random.below(96);
      const double right = element(product.c.view, row, col);
      const double allowed = check_lines(product.product()).rows[static_cast<std::size_t>(row)].threshold;
      set(product.c, row, col, right + 1.3 * allowed);
      const Verification verification = verify(product.product());
      if (verification.outcome != Outcome::kFaulty) continue;  // rounding was the other way
      ++found;
      const Fault& fault = verification.faults.front();
      if (!fault.located()) continue;
      ++placed;
      CHECK((fault.row == row && fault.col == col && verification.faults.size() == 1));
      CHECK(std::fabs(fault.corrected - right) <= std::max(0.1 * allowed, 2 * spacing(right, dtype)));
      if (!fault.by_row) continue;
      ++valued;
      CHECK(std::fabs(fault.by_row->value - right) <= fault.by_row->threshold);
    }
    CHECK(found > 350);
    CHECK(placed == found);
    CHECK(valued == placed);
  }
}

}  // namespace
