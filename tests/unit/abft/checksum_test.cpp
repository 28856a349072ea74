#include "ttrace/abft/checksum.h"

#include <doctest/doctest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <cmath>
#include <limits>

#include "support/products.h"

namespace {

using namespace ttrace;
using namespace ttrace::abft;

// Small whole numbers: every sum of them is exact.
void fill_whole(Matrix& matrix, Random& random) {
  for (std::int64_t row = 0; row < matrix.view.rows; ++row) {
    for (std::int64_t col = 0; col < matrix.view.cols; ++col) {
      set(matrix, row, col, static_cast<double>(random.below(15) - 4));
    }
  }
}

LineSums whole_numbers(std::int64_t count, Random& random) {
  LineSums sums;
  for (std::int64_t i = 0; i < count; ++i) {
    sums.plain.push_back(static_cast<double>(random.below(9) - 4));
    sums.weighted.push_back(static_cast<double>(random.below(9) - 4));
  }
  return sums;
}

struct Expected {
  LineStatistics line;
  double plain = 0, weighted = 0;
};

// Row `row`, element by element.
Expected row_of(const MatrixView& matrix, std::int64_t row, const LineSums& right) {
  Expected expected;
  LineStatistics& line = expected.line;
  for (std::int64_t col = 0; col < matrix.cols; ++col) {
    const double x = element(matrix, row, col);
    ++line.count;
    if (!std::isfinite(x)) {
      ++line.nonfinite;
      continue;
    }
    line.sum += x;
    line.weighted += static_cast<double>(col + 1) * x;
    line.smallest = std::min(line.smallest, x);
    line.largest = std::max(line.largest, x);
    line.absolute += std::fabs(x);
    line.square += x * x;
    expected.plain += x * right.plain[static_cast<std::size_t>(col)];
    expected.weighted += x * right.weighted[static_cast<std::size_t>(col)];
  }
  return expected;
}

bool equal(const LineStatistics& a, const LineStatistics& b) {
  return a.sum == b.sum && a.weighted == b.weighted && a.absolute == b.absolute && a.square == b.square &&
         a.count == b.count && a.nonfinite == b.nonfinite;
}

void check_equal(const MatrixLines& a, const MatrixLines& b) {
  for (std::size_t i = 0; i < a.rows.size(); ++i) CHECK(equal(a.rows[i], b.rows[i]));
  for (std::size_t i = 0; i < a.cols.size(); ++i) CHECK(equal(a.cols[i], b.cols[i]));
  CHECK((a.left_times.plain == b.left_times.plain && a.left_times.weighted == b.left_times.weighted));
  CHECK((a.times_right.plain == b.times_right.plain && a.times_right.weighted == b.times_right.weighted));
}

void check_against(const MatrixView& matrix, const std::vector<LineStatistics>& rows, const LineSums& products,
                   const LineSums& right) {
  REQUIRE(std::ssize(rows) == matrix.rows);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    const Expected expected = row_of(matrix, row, right);
    const bool has_extrema = rows[at].smallest == expected.line.smallest && rows[at].largest == expected.line.largest;
    CHECK((equal(rows[at], expected.line) && (has_extrema || expected.line.nonfinite > 0)));
    CHECK((products.plain[at] == expected.plain && products.weighted[at] == expected.weighted));
  }
}

TEST_SUITE("abft") {
  TEST_CASE("one reading gives the sums, statistics and products of all rows and columns") {
    constexpr std::int64_t kShapes[][2] = {{1, 1}, {3, 40}, {33, 7}, {300, 1100}, {5, 8200}};
    Random random(11);
    for (const Dtype dtype :
         {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat8E4M3}) {
      for (const Layout layout : {Layout::kRowMajor, Layout::kTransposed, Layout::kStrided}) {
        for (const auto& [rows, cols] : kShapes) {
          for (const int nonfinite : {0, 2}) {
            CAPTURE(name_of(dtype));
            CAPTURE(static_cast<int>(layout));
            CAPTURE(rows);
            CAPTURE(nonfinite);
            Matrix matrix = zeros(dtype, rows, cols, layout);
            fill_whole(matrix, random);
            for (int i = 0; i < nonfinite; ++i) {
              set(matrix, random.below(rows), random.below(cols), i == 0 ? HUGE_VAL : std::nan(""));
            }
            const LineSums left = whole_numbers(rows, random), right = whole_numbers(cols, random);
            const MatrixLines lines =
                read_lines(matrix.view, {.depth = Depth::kNorms, .weighted = true, .left = &left, .right = &right});
            check_against(matrix.view, lines.rows, lines.times_right, right);
            check_against(transposed(matrix.view), lines.cols, lines.left_times, left);
          }
        }
      }
    }
  }

  TEST_CASE("sums of fp64 lose less than a rounding, however long they are") {
    // Each addition of 0.1 rounds the same way: uncompensated, the sum is off by 1e-7.
    const std::int64_t n = 1 << 20;
    const std::vector<double> values(static_cast<std::size_t>(n), 0.1);
    const double exact = static_cast<double>(static_cast<long double>(0.1) * n);
    for (const MatrixView& matrix :
         {row_major(values.data(), Dtype::kFloat64, 1, n), row_major(values.data(), Dtype::kFloat64, n, 1)}) {
      const MatrixLines lines = read_lines(matrix, {.depth = Depth::kSums});
      CHECK((matrix.rows == 1 ? lines.rows : lines.cols).front().sum == exact);
    }
  }

  TEST_CASE("every number of threads gives the same bits") {
    const int threads = omp_get_max_threads();
    Random random(5);
    Matrix matrix = zeros(Dtype::kFloat32, 1500, 9000);
    fill(matrix, Distribution::kHeavyTailed, 1, random);
    const auto read_with = [&](int count) {
      omp_set_num_threads(count);
      return read_lines(matrix.view, {.depth = Depth::kNorms, .weighted = true});
    };
    const MatrixLines one = read_with(1), three = read_with(3), seven = read_with(7);
    omp_set_num_threads(threads);
    for (const MatrixLines* other : {&three, &seven}) check_equal(one, *other);
  }

  TEST_CASE("every instruction set gives the same bits") {
    Random random(7);
    for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
      for (const std::int64_t cols : {3, 13, 1037, 1053}) {  // rests of strips of every width
        CAPTURE(name_of(dtype));
        CAPTURE(cols);
        Matrix matrix = zeros(dtype, 61, cols);
        fill(matrix, Distribution::kHeavyTailed, 1, random);
        LineSums left = whole_numbers(61, random), right = whole_numbers(cols, random);
        for (double& factor : left.plain) factor *= 0.1;
        for (double& factor : right.weighted) factor *= 0.1;
        const auto read = [&] {
          return read_lines(matrix.view, {.depth = Depth::kNorms, .weighted = true, .left = &left, .right = &right});
        };
        const MatrixLines best = read();
        int targets = 0;
        for (auto rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1, ++targets) {
          hwy::SetSupportedTargetsForTest(rest & -rest);
          check_equal(best, read());
        }
        hwy::SetSupportedTargetsForTest(0);
        CHECK(targets > 0);
      }
    }
  }
}

}  // namespace
