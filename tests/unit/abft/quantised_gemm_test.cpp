#include "abft/quantised_gemm.h"

#include <doctest/doctest.h>

#include "reproductions/multiply.h"

namespace {

using namespace ttrace::abft;
using ttrace::reproductions::multiply;
using ttrace::reproductions::Random;

struct Operands {
  std::vector<std::uint8_t> a;
  std::vector<std::int8_t> b;
};

Operands random_operands(const GemmShape& shape, Random& random) {
  Operands operands;
  for (std::int64_t i = 0; i < shape.m * shape.k; ++i) operands.a.push_back(static_cast<std::uint8_t>(random.bits()));
  for (std::int64_t i = 0; i < shape.k * shape.n; ++i) operands.b.push_back(static_cast<std::int8_t>(random.bits()));
  return operands;
}

using Rows = std::vector<std::int64_t>;

TEST_SUITE("abft") {
  TEST_CASE("the checksum of a row of B keeps its sign and fits into int8") {
    const std::vector<std::int8_t> b = {100, 100, 100, -100, -100, -1, 127, 0, 0, -128, -128, 1};
    CHECK(pack_with_checksum(b, 4, 3) ==
          std::vector<std::int8_t>{100, 100, 100, 46, -100, -100, -1, -74, 127, 0, 0, 0, -128, -128, 1, -1});
  }

  TEST_CASE("right products have no corrupted rows, and any flipped bit of C names its row") {
    Random random(1);
    int found = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      const GemmShape shape{1 + random.below(6), 1 + random.below(40), random.below(50)};
      const Operands operands = random_operands(shape, random);
      const std::vector<std::int8_t> packed = pack_with_checksum(operands.b, shape.k, shape.n);
      std::vector<std::int32_t> c = multiply(operands.a, packed, shape);
      REQUIRE(problem_of(shape, std::ssize(operands.a), std::ssize(packed), std::ssize(c)).empty());
      CHECK(corrupted_rows(c, shape.m, shape.n).empty());
      const std::int64_t row = random.below(shape.m);
      auto& element = c[static_cast<std::size_t>(row * (shape.n + 1) + random.below(shape.n))];
      element = static_cast<std::int32_t>(static_cast<std::uint32_t>(element) ^ (1u << random.below(32)));
      found += corrupted_rows(c, shape.m, shape.n) == Rows{row};
    }
    CHECK(found == 2000);
  }

  TEST_CASE("an error of a multiple of 127 is not seen") {
    std::vector<std::int32_t> c = {5, 6, 11};
    CHECK(corrupted_rows(c, 1, 2).empty());
    c[0] += 127;
    CHECK(corrupted_rows(c, 1, 2).empty());
    c[0] += 1;
    CHECK(corrupted_rows(c, 1, 2) == Rows{0});
  }

  TEST_CASE("shapes that do not fit and sums that may overflow are named") {
    CHECK(problem_of({0, 4, 4}, 0, 20, 0) == "a product [0, 4] x [4, 4] has no elements");
    CHECK(problem_of({2, 4, 4}, 7, 20, 10) == "A has 7 elements, not 2 x 4");
    CHECK(problem_of({2, 4, 4}, 8, 16, 10) == "the packed B has 16 elements, not 4 x (4 + 1)");
    CHECK(problem_of({2, 4, 4}, 8, 20, 8) == "C has 8 elements, not 2 x (4 + 1)");
    CHECK(problem_of({1, 1, 65794}, 65794, 131588, 2) == "K is 65794: int32 may overflow beyond 65793");
  }
}

}  // namespace
