#include <doctest/doctest.h>

#include <vector>

#include "compare/compare.h"

namespace {

using namespace ttrace;

using test::kInf;
using test::kNan;

TEST_SUITE("compare") {
  TEST_CASE("statistics tell norm, extremes and what is not finite") {
    const std::vector<float> values = {3, -4, 0, kNan, kInf, -kInf};
    const auto statistics = statistics_of(reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat32, 6);
    CHECK(statistics.norm == 5);
    CHECK(statistics.min == -4);
    CHECK(statistics.max == 3);
    CHECK(statistics.mean == doctest::Approx(-1.0 / 3));
    CHECK(statistics.nan == 1);
    CHECK(statistics.inf == 2);
    CHECK(statistics.zero == 1);
    CHECK(statistics_of(nullptr, Dtype::kFloat32, 0).norm == 0);
  }
}

}  // namespace
