#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "support/products.h"

namespace {

using namespace ttrace;
using namespace ttrace::abft;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A right product whose bias is as `with_bias` says.
RandomProduct right_product(Shape3 shape, Dtype dtype, bool with_bias = false) {
  Random random(7);
  RandomProduct product = random_product(shape, dtype, dtype, Distribution::kUniform, random);
  product.has_bias = with_bias;
  multiply(product);
  return product;
}

std::string reason_of(const Product& product) {
  const Verification verification = verify(product);
  CHECK(verification.outcome == Outcome::kNotCheckable);
  CHECK(verification.faults.empty());
  return verification.reason;
}

// The numbers of every check, for comparison.
std::vector<double> numbers_of(const LineChecks& checks) {
  std::vector<double> numbers;
  for (const std::vector<LineCheck>* lines : {&checks.rows, &checks.cols}) {
    for (const LineCheck& line : *lines) {
      numbers.insert(numbers.end(), {line.sum_difference, line.weighted_difference, line.checksum, line.threshold,
                                     static_cast<double>(line.nonfinite), line.unusable.empty() ? 0.0 : 1.0});
    }
  }
  return numbers;
}

TEST_SUITE("abft") {
  TEST_CASE("what cannot be checked says why, and is never verified") {
    const RandomProduct right = right_product({4, 5, 6}, Dtype::kFloat32, true);
    const Product product = right.product();
    CHECK(verify(product).outcome == Outcome::kVerified);

    Product wrong = product;
    wrong.terms.clear();
    CHECK(reason_of(wrong) == "there are no operands");
    wrong = product;
    wrong.terms[0].b = transposed(wrong.terms[0].b);
    CHECK(reason_of(wrong) == "A [4, 5] times B [6, 5] is not C [4, 6]");
    wrong = product;
    wrong.terms[0].b.data = nullptr;
    CHECK(reason_of(wrong) == "B [5, 6] has no data");
    wrong = product;
    wrong.bias->data = nullptr;
    CHECK(reason_of(wrong) == "the bias [4, 6] has no data");
    wrong = product;
    wrong.bias->row_stride = 6;
    CHECK(reason_of(wrong) == "the bias [4, 6] is no row or column repeated to [4, 6]");
    wrong = product;
    wrong.terms[0].a.dtype = Dtype::kInt32;
    CHECK(reason_of(wrong) == "A is int32, not floating-point");
    wrong = product;
    wrong.c.rows = 0;
    wrong.terms[0].a.rows = 0;
    wrong.bias->rows = 0;
    CHECK(reason_of(wrong) == "C has no elements");
    wrong.c.rows = -1;
    CHECK(reason_of(wrong) == "C has the shape [-1, 6]");
  }

  TEST_CASE("a forgotten bias and a transposed weight are faults") {
    const RandomProduct right = right_product({5, 6, 6}, Dtype::kFloat32, true);
    Product wrong = right.product();
    wrong.bias.reset();
    CHECK(verify(wrong).outcome == Outcome::kFaulty);
    wrong = right.product();
    wrong.terms[0].b = transposed(wrong.terms[0].b);
    CHECK(verify(wrong).outcome == Outcome::kFaulty);
  }

  TEST_CASE("an empty K leaves the bias, or zero") {
    RandomProduct product = right_product({3, 0, 4}, Dtype::kBFloat16, true);
    CHECK(verify(product.product()).outcome == Outcome::kVerified);
    product.has_bias = false;
    CHECK(verify(product.product()).outcome == Outcome::kFaulty);
    multiply(product);
    CHECK(verify(product.product()).outcome == Outcome::kVerified);
  }

  TEST_CASE("operands of NaN are not verified, but what lies beside them is checked") {
    RandomProduct all = right_product({3, 4, 5}, Dtype::kFloat32);
    for (int i = 0; i < 12; ++i) set(all.a, i / 4, i % 4, kNan);
    multiply(all);
    CHECK(reason_of(all.product()) == "3 of 3 rows and 5 of 5 columns cannot be summed: the operands are not finite");

    RandomProduct one = right_product({30, 4, 5}, Dtype::kFloat32);
    set(one.a, 2, 1, kInfinity);
    multiply(one);
    CHECK(reason_of(one.product()) == "1 of 30 rows and 5 of 5 columns cannot be summed: the operands are not finite");
    set(one.c, 7, 3, 1e6);
    const Verification found = verify(one.product());
    CHECK(found.outcome == Outcome::kFaulty);
    CHECK(found.rows_checked == 29);
    REQUIRE(found.faults.size() == 1);
    CHECK(found.faults[0].row == 7);
    CHECK(found.faults[0].col == 3);
  }

  TEST_CASE("fp16 that overflows because its operands do is right; infinity for no reason is wrong") {
    RandomProduct product{zeros(Dtype::kFloat16, 3, 2), zeros(Dtype::kFloat16, 2, 4), zeros(Dtype::kFloat16, 3, 4), {}};
    for (int i = 0; i < 6; ++i) set(product.a, i / 2, i % 2, 150 + i);
    for (int i = 0; i < 8; ++i) set(product.b, i / 4, i % 4, i % 4 == 2 ? 230 : 3 + i);
    multiply(product);
    REQUIRE(element(product.c.view, 1, 2) == kInfinity);
    Verification verification = verify(product.product());
    CHECK(verification.outcome == Outcome::kVerified);
    CHECK(verification.overflowed == 3);
    set(product.c, 1, 3, kInfinity);
    set(product.c, 2, 2, -kInfinity);
    verification = verify(product.product());
    CHECK(verification.outcome == Outcome::kFaulty);
    REQUIRE(verification.faults.size() == 2);
    CHECK(verification.faults[0].row == 1);
    CHECK(verification.faults[0].col == 3);
    CHECK(verification.faults[1].row == 2);
    CHECK(verification.faults[1].corrected == kInfinity);
  }

  TEST_CASE("sums that overflow fp64 verify nothing") {
    RandomProduct product{zeros(Dtype::kFloat64, 2, 1), zeros(Dtype::kFloat64, 1, 3), zeros(Dtype::kFloat64, 2, 3), {}};
    for (int i = 0; i < 3; ++i) set(product.b, 0, i, 1.5e308);
    for (int i = 0; i < 2; ++i) set(product.a, i, 0, 1);
    multiply(product);
    CHECK(reason_of(product.product()) == "2 of 2 rows and 3 of 3 columns cannot be summed: the sums overflow fp64");
  }

  TEST_CASE("a fault is placed though the weighted sum overflows") {
    RandomProduct product = right_product({6, 3, 40}, Dtype::kFloat64);
    set(product.c, 4, 30, 1e307);
    const Verification verification = verify(product.product());
    REQUIRE(verification.faults.size() == 1);
    CHECK(verification.faults[0].row == 4);
    CHECK(verification.faults[0].col == 30);
  }

  TEST_CASE("the sums of row and column give the right value of an infinity, and none where two elements are wrong") {
    RandomProduct product = right_product({6, 8, 9}, Dtype::kFloat32);
    const double right = element(product.c.view, 4, 3), other = element(product.c.view, 4, 7);
    set(product.c, 4, 3, kInfinity);
    Verification verification = verify(product.product());
    REQUIRE(verification.faults.size() == 1);
    const Fault alone = verification.faults[0];
    REQUIRE((alone.by_row && alone.by_col));
    CHECK(alone.by_row->value == doctest::Approx(right).epsilon(1e-5));
    CHECK(alone.by_col->value == doctest::Approx(right).epsilon(1e-5));
    set(product.c, 4, 7, other + 100);
    verification = verify(product.product());
    REQUIRE(verification.faults.size() == 2);
    CHECK(!verification.faults[0].by_row);
    REQUIRE(verification.faults[1].by_col);
    CHECK(verification.faults[1].by_col->value == doctest::Approx(other).epsilon(1e-4));
  }

  TEST_CASE("several faults in a row, in a column and in both are each placed") {
    for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16}) {
      RandomProduct product = right_product({40, 20, 30}, dtype);
      const RandomProduct right = product;
      for (const auto& [row, col] : {std::pair{3, 4}, {3, 9}, {3, 20}, {8, 4}, {11, 4}, {30, 1}}) {
        set(product.c, row, col, 1000 + 100 * row + 7 * col);
      }
      const Verification verification = verify(product.product());
      CHECK(verification.faults.size() == 6);
      correct(product, verification);
      CHECK(verify(product.product()).outcome == Outcome::kVerified);
      CHECK(element(product.c.view, 3, 9) == doctest::Approx(element(right.c.view, 3, 9)).epsilon(0.01));
    }
  }

  TEST_CASE("operands that are correlated give larger elements, whose rounding is right; a wrong one beside is found") {
    // The gradient of a loss of squares: Y W, where Y = X W^T.
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
      Random random(seed);
      RandomProduct forward =
          random_product({4, 16, 4096}, Dtype::kBFloat16, Dtype::kBFloat16, Distribution::kUniform, random);
      multiply(forward);
      Matrix gradient = zeros(Dtype::kBFloat16, 4, 16);
      const Product product{.terms = {{forward.c.view, transposed(forward.b.view)}}, .c = gradient.view};
      for (int i = 0; i < 64; ++i) set(gradient, i / 16, i % 16, exact_element(product, i / 16, i % 16));
      CHECK(verify(product).outcome == Outcome::kVerified);
      const double right = element(gradient.view, 2, 5);
      set(gradient, 2, 5, -right);
      const Verification verification = verify(product);
      REQUIRE(verification.faults.size() == 1);
      CHECK((verification.faults[0].row == 2 && verification.faults[0].col == 5));
      CHECK(verification.faults[0].corrected == right);
    }
  }

  TEST_CASE("a small fault is found in the row of a huge one") {
    RandomProduct product = right_product({5, 8, 40}, Dtype::kFloat32);
    set(product.c, 3, 4, 1e30);
    set(product.c, 3, 9, element(product.c.view, 3, 9) + 1);
    const Verification verification = verify(product.product());
    REQUIRE(verification.faults.size() == 2);
    CHECK(verification.faults[0].col == 4);
    CHECK(verification.faults[1].col == 9);
  }

  TEST_CASE("a product of other operands is faulty, its rows named") {
    const RandomProduct product = right_product({40, 20, 30}, Dtype::kFloat32);
    Product wrong = product.product();
    wrong.terms[0].a.data += 4;
    wrong.terms[0].a.rows = wrong.c.rows = 39;
    const Verification verification = verify(wrong);
    CHECK(verification.outcome == Outcome::kFaulty);
    CHECK(verification.faults.size() > 30);
  }

  // A checksum must round far less than the product that it checks. With a mean of one the sums of columns are large,
  // and added up in order in fp64 they are as wrong as the product itself.
  TEST_CASE("large products in fp64 of a mean far from zero raise no alarm") {
    Random random(11);
    for (int i = 0; i < 12; ++i) {
      RandomProduct product =
          random_product({96, 512, 96}, Dtype::kFloat64, Dtype::kFloat64, Distribution::kMeanOne, random);
      CHECK(verify(product.product()).outcome == Outcome::kVerified);
    }
  }

  // Sums in fp32 are for products that are rounded to 16 bits. By the bound for fp64 they would be an alarm.
  TEST_CASE("a product of bf16 that is not rounded is held to its own precision") {
    Random random(13);
    Matrix a = zeros(Dtype::kBFloat16, 40, 300), b = zeros(Dtype::kBFloat16, 300, 50),
           c = zeros(Dtype::kFloat64, 40, 50);
    fill(a, Distribution::kHeavyTailed, 1, random);
    fill(b, Distribution::kHeavyTailed, 1, random);
    const Product product = {{{a.view, b.view}}, c.view};
    for (std::int64_t row = 0; row < 40; ++row) {
      for (std::int64_t col = 0; col < 50; ++col) set(c, row, col, exact_element(product, row, col));
    }
    const VerifyOptions options = {.threshold = {.method = ThresholdMethod::kSimplified}};
    CHECK(verify(product, options).outcome == Outcome::kVerified);
    // Takes those sums that `verify` takes first: it would sum again what disagrees.
    const LineChecks checks = check_lines(product, options);
    for (const std::vector<LineCheck>* lines : {&checks.rows, &checks.cols}) {
      for (const LineCheck& line : *lines) CHECK(!line.disagrees());
    }
    set(c, 7, 9, element(c.view, 7, 9) * (1 + 1e-6));
    CHECK(verify(product, options).outcome == Outcome::kFaulty);
  }

  TEST_CASE("a product is checked alike whatever the same thread has checked before") {
    std::vector<RandomProduct> products;
    for (const Shape3 shape : {Shape3{300, 40, 1100}, Shape3{3, 5, 4}, Shape3{2, 40000, 3}, Shape3{40, 30, 50}}) {
      for (const Dtype dtype : {Dtype::kFloat64, Dtype::kBFloat16, Dtype::kFloat32}) {
        products.push_back(right_product(shape, dtype));
      }
    }
    set(products[0].a, 1, 2, kNan);
    set(products[1].c, 299, 1099, kInfinity);
    for (const bool weighted : {true, false}) {
      for (const RandomProduct& right : products) {
        VerifyOptions options;
        options.weighted = weighted;
        std::vector<double> alone;
        std::thread([&] { alone = numbers_of(check_lines(right.product(), options)); }).join();
        CHECK(numbers_of(check_lines(right.product(), options)) == alone);
      }
    }
  }

  TEST_CASE("pieces of K are one product") {
    const RandomProduct product = right_product({9, 16, 7}, Dtype::kFloat32, true);
    Product pieces = product.product();
    const auto [a, b] = pieces.terms[0];
    pieces.terms = {{block(a, 0, 9, 0, 10), block(b, 0, 10, 0, 7)}, {block(a, 0, 9, 10, 6), block(b, 10, 6, 0, 7)}};
    CHECK(verify(pieces).outcome == Outcome::kVerified);
    pieces.terms.pop_back();  // a partial sum that nobody added
    CHECK(verify(pieces).outcome == Outcome::kFaulty);
  }
}

}  // namespace
