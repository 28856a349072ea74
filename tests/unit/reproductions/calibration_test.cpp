#include "reproductions/calibration.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "support/products.h"

namespace {

using namespace ttrace;
using namespace ttrace::abft;
using namespace ttrace::reproductions;

TEST_SUITE("reproductions") {
  TEST_CASE("calibration of products that round once to bf16 finds about 2 u") {
    const Multiply round_once = [](const MatrixView& a, const MatrixView& b, const MutableMatrixView& c) {
      const Product product{{{a, b}}, c.layout, {}};
      for (std::int64_t row = 0; row < c.layout.rows; ++row) {
        for (std::int64_t col = 0; col < c.layout.cols; ++col) {
          Matrix one = zeros(c.layout.dtype, 1, 1);
          set(one, 0, 0, exact_element(product, row, col));
          std::copy(one.bytes.begin(), one.bytes.end(), c.at(row, col));
        }
      }
    };
    const std::array<CalibrationSize, 2> sizes = {{{8, 16, 24}, {8, 16, 96}}};
    const Calibration calibration = calibrate(round_once, Dtype::kBFloat16, Dtype::kBFloat16, sizes, 40, 5);
    REQUIRE(calibration.largest.size() == 2);
    // However long the rows: both sums are rounded.
    for (const double largest : calibration.largest) {
      CHECK(largest > 0x1p-9);
      CHECK(largest <= 3 * 0x1p-8);
    }
    CHECK(calibration.e_max == 1.2 * std::max(calibration.largest[0], calibration.largest[1]));
  }
}

}  // namespace
