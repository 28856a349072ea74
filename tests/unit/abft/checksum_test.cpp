#include "abft/checksum.h"

#include <doctest/doctest.h>
#include <hwy/targets.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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

// Sums, extrema and products of whole numbers, which no order of summation changes.
void check_same_sums(const MatrixLines& a, const MatrixLines& b) {
  const auto same = [](const LineStatistics& x, const LineStatistics& y) {
    return x.sum == y.sum && x.smallest == y.smallest && x.largest == y.largest && x.nonfinite == y.nonfinite;
  };
  CHECK(std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), b.rows.end(), same));
  CHECK(std::equal(a.cols.begin(), a.cols.end(), b.cols.begin(), b.cols.end(), same));
  CHECK(a.left_times.plain == b.left_times.plain);
  CHECK(a.times_right.plain == b.times_right.plain);
}

// Checks that no number is off by more than 2^-17 of the sum of the magnitudes that it adds up.
void check_near(const std::vector<double>& sums, const std::vector<double>& exact,
                const std::vector<double>& magnitudes) {
  REQUIRE(sums.size() == exact.size());
  for (std::size_t i = 0; i < sums.size(); ++i) CHECK(std::fabs(sums[i] - exact[i]) <= 0x1p-17 * magnitudes[i]);
}

TEST_SUITE("abft") {
  TEST_CASE("one reading gives the sums, statistics and products of all rows and columns") {
    constexpr std::int64_t kShapes[][2] = {{1, 1}, {3, 40}, {33, 7}, {300, 1100}, {5, 8200}};
    Random random(11);
    for (const Dtype dtype :
         {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat8E4M3}) {
      for (const Layout layout : {Layout::kRowMajor, Layout::kTransposed, Layout::kStrided}) {
        for (const auto& shape : kShapes) {
          const auto rows = shape[0], cols = shape[1];
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
            const MatrixLines in_fp32 =
                read_lines(matrix.view, {.depth = Depth::kExtrema, .in_fp32 = true, .left = &left, .right = &right});
            check_same_sums(lines, in_fp32);
          }
        }
      }
    }
  }

  TEST_CASE("a reader gives of a matrix what it gives alone, whatever it read before") {
    Random random(13);
    const auto filled = [&](Dtype dtype, std::int64_t rows, std::int64_t cols, Layout layout) {
      Matrix matrix = zeros(dtype, rows, cols, layout);
      fill_whole(matrix, random);
      return matrix;
    };
    const Matrix matrices[] = {filled(Dtype::kFloat64, 300, 1100, Layout::kRowMajor),
                               filled(Dtype::kBFloat16, 40, 2500, Layout::kTransposed),
                               filled(Dtype::kFloat16, 700, 20, Layout::kRowMajor)};
    LineReader reader;
    for (const Depth depth : {Depth::kNorms, Depth::kNone, Depth::kSums, Depth::kExtrema}) {
      for (const Matrix& matrix : matrices) {
        const LineSums left = whole_numbers(matrix.view.rows, random), right = whole_numbers(matrix.view.cols, random);
        const Reading reading = {.depth = depth, .weighted = depth != Depth::kSums, .left = &left, .right = &right};
        const MatrixLines& lines = reader.read(matrix.view, reading);
        const MatrixLines alone = read_lines(matrix.view, reading);
        REQUIRE((lines.rows.size() == alone.rows.size() && lines.cols.size() == alone.cols.size()));
        check_equal(alone, lines);
        check_same_sums(alone, lines);
      }
    }
    const MatrixLines& nothing = reader.read(row_major(nullptr, Dtype::kFloat32, 3, 0), {.depth = Depth::kSums});
    REQUIRE(nothing.rows.size() == 3);
    for (const LineStatistics& line : nothing.rows) CHECK((line.sum == 0 && line.count == 0));
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

  TEST_CASE("16-bit sums in fp32 lose 2^-17 of their magnitudes at most, those beyond fp32 no more than in fp64") {
    Random random(3);
    for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
      for (const double scale : {1e-6, 1.0, 3e4, 1e38}) {
        if (dtype == Dtype::kFloat16 && scale > 3e4) continue;
        for (const auto& shape : {std::pair<std::int64_t, std::int64_t>{700, 1500}, {2, 5000}, {1, 1}}) {
          const auto rows = shape.first, cols = shape.second;
          CAPTURE(name_of(dtype));
          CAPTURE(scale);
          CAPTURE(rows);
          Matrix matrix = zeros(dtype, rows, cols);
          // The elements are as bad as can be: of one sign, and each of all its bits.
          for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t col = 0; col < cols; ++col) {
              set(matrix, row, col, scale * (1 + random.uniform()));
            }
          }
          const auto numbers = [&](std::int64_t count) {
            LineSums sums;
            for (std::int64_t i = 0; i < count; ++i) {
              sums.plain.push_back(1 + random.uniform());
              sums.weighted.push_back(0);
            }
            return sums;
          };
          const LineSums left = numbers(rows), right = numbers(cols);
          const Reading wide = {.depth = Depth::kExtrema, .left = &left, .right = &right};
          Reading narrow = wide;
          narrow.in_fp32 = true;
          const MatrixLines exact = read_lines(matrix.view, wide), sums = read_lines(matrix.view, narrow);
          const auto plain = [](const std::vector<LineStatistics>& lines) { return sums_of(lines).plain; };
          check_near(plain(sums.rows), plain(exact.rows), plain(exact.rows));
          check_near(plain(sums.cols), plain(exact.cols), plain(exact.cols));
          check_near(sums.left_times.plain, exact.left_times.plain, exact.left_times.plain);
          check_near(sums.times_right.plain, exact.times_right.plain, exact.times_right.plain);
        }
      }
    }
  }

  TEST_CASE("the extrema of lines of 16-bit elements are right for every number and sign") {
    constexpr std::int64_t kRows = 64, kCols = 1024;
    for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
      std::vector<std::uint16_t> bits(kRows * kCols);  // each pattern once; whole rows are negative
      for (std::size_t i = 0; i < bits.size(); ++i) {
        const auto magnitude = i & 0x7fff;  // what is not finite, or has sums beyond fp32, would be read otherwise
        bits[i] = static_cast<std::uint16_t>(magnitude < 0x7c00 ? i : i & 0x8000);
      }
      const MatrixView matrix = row_major(reinterpret_cast<const std::byte*>(bits.data()), dtype, kRows, kCols);
      for (const bool in_fp32 : {false, true}) {
        const MatrixLines lines = read_lines(matrix, {.depth = Depth::kExtrema, .in_fp32 = in_fp32});
        const auto check = [&](const MatrixView& view, const std::vector<LineStatistics>& rows) {
          const LineSums none = {std::vector<double>(kCols), std::vector<double>(kCols)};
          for (std::int64_t row = 0; row < view.rows; ++row) {
            const LineStatistics &line = rows[static_cast<std::size_t>(row)], expected = row_of(view, row, none).line;
            CHECK((line.smallest == expected.smallest && line.largest == expected.largest));
          }
        };
        check(matrix, lines.rows);
        check(transposed(matrix), lines.cols);
      }
    }
  }

  TEST_CASE("every number of threads gives the same bits") {
    const int threads = omp_get_max_threads();
    Random random(5);
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
      Matrix matrix = zeros(dtype, 1500, 9000);
      fill(matrix, Distribution::kHeavyTailed, 1, random);
      const bool in_fp32 = dtype == Dtype::kBFloat16;
      const Reading reading = {
          .depth = in_fp32 ? Depth::kExtrema : Depth::kNorms, .weighted = !in_fp32, .in_fp32 = in_fp32};
      const auto read_with = [&](int count) {
        omp_set_num_threads(count);
        return read_lines(matrix.view, reading);
      };
      const MatrixLines one = read_with(1), three = read_with(3), seven = read_with(7);
      omp_set_num_threads(threads);
      for (const MatrixLines* other : {&three, &seven}) check_equal(one, *other);
    }
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
        for (double& factor : right.weighted) factor *= 0.1;
        for (double& factor : left.plain) factor *= 0.1;
        for (double& factor : right.plain) factor *= 0.1;
        const Reading everything = {.depth = Depth::kNorms, .weighted = true, .left = &left, .right = &right},
                      in_fp32 = {.depth = Depth::kExtrema, .in_fp32 = true, .left = &left, .right = &right};
        for (const Reading& reading : {everything, in_fp32}) {
          const MatrixLines best = read_lines(matrix.view, reading);
          int targets = 0;
          for (auto rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1, ++targets) {
            hwy::SetSupportedTargetsForTest(rest & -rest);
            check_equal(best, read_lines(matrix.view, reading));
          }
          hwy::SetSupportedTargetsForTest(0);
          CHECK(targets > 0);
        }
      }
    }
  }
}

}  // namespace
