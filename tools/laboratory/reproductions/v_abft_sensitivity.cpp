// Prints what `ttrace abft` sees at all of a wrong product, with V-ABFT's threshold and the default e_max.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "numeric/convert.h"
#include "reproductions/multiply.h"
#include "reproductions/papers.h"
#include "reproductions/table.h"

namespace ttrace::reproductions {
namespace {

constexpr std::int64_t kRows = 64, kBlock = 16;

// The least wrong that is seen, in one of the rows or columns, of one right product.
struct Least {
  int scale = 0;                // all of C times 1 + 2^-scale; 0: not even twice
  double shift_of_row = 0;      // added to every element of one row, in units of C's root mean square
  double shift_of_element = 0;  // added to one element, likewise
  double shift_in_block = 0;    // the same, where a sum covers kBlock elements
};

// A line is called wrong when its difference exceeds its threshold; a wrong element adds to it what it is off by.
bool sees(const abft::LineCheck& line, double change) {
  return !(std::fabs(line.sum_difference + change) <= line.threshold);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns what one element must be off by: the line of the two that it lies in whose threshold is smaller shows it.
double least_shift_of_element(const abft::LineChecks& checks) {
  std::vector<double> of_rows, of_columns;
  for (const abft::LineCheck& line : checks.rows) of_rows.push_back(line.threshold - line.sum_difference);
  for (const abft::LineCheck& line : checks.cols) of_columns.push_back(line.threshold - line.sum_difference);
  return std::min(median(std::move(of_rows)), median(std::move(of_columns)));
}

Least least_seen(std::int64_t size, Dtype dtype, Distribution distribution) {
  Random random(static_cast<std::uint64_t>(size));
  const Example example = random_example(kRows, size, size, dtype, distribution, random);
  const abft::LineChecks checks = check_lines(example.product());
  std::vector<double> c(static_cast<std::size_t>(kRows * size));
  widen(example.c.data(), dtype, kRows * size, c.data());
  double square = 0;
  for (const double value : c) square += value * value;
  const double rms = std::sqrt(square / static_cast<double>(c.size()));
  Least least;
  for (int scale = 1; scale < 40; ++scale) {
    const auto is_seen = [&](const abft::LineCheck& line) { return sees(line, line.checksum * std::ldexp(1, -scale)); };
    if (std::any_of(checks.rows.begin(), checks.rows.end(), is_seen) ||
        std::any_of(checks.cols.begin(), checks.cols.end(), is_seen))
      least.scale = scale;
  }
  std::vector<double> needed;
  for (const abft::LineCheck& line : checks.rows) needed.push_back((line.threshold - line.sum_difference) / rms);
  least.shift_of_row = median(needed) / static_cast<double>(size);
  least.shift_of_element = least_shift_of_element(checks) / rms;
  abft::VerifyOptions in_blocks;
  in_blocks.block = kBlock;
  least.shift_in_block = least_shift_of_element(check_lines(example.product(), in_blocks)) / rms;
  return least;
}

}  // namespace

void v_abft_sensitivity() {
  std::vector<Row> rows = {{"dtype", "operands", "K = N", "all of C times", "one row, each element off by",
                            "one element off by", fmt::format("with --block {}", kBlock)}};
  for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat16, Dtype::kFloat32}) {
    for (const Distribution distribution : {Distribution::kNearZeroMean, Distribution::kMeanOne}) {
      for (const std::int64_t size : {64, 256, 1024, 4096}) {
        const Least least = least_seen(size, dtype, distribution);
        rows.push_back({std::string(ttrace::name_of(dtype)), std::string(name_of(distribution)),
                        fmt::format("{}", size), least.scale == 0 ? "not seen" : fmt::format("1 + 2^-{}", least.scale),
                        fmt::format("{:.2g} rms", least.shift_of_row),
                        fmt::format("{:.2g} rms", least.shift_of_element),
                        fmt::format("{:.2g} rms", least.shift_in_block)});
      }
    }
  }
  print_table("V-ABFT: the least that ttrace abft sees, C of 64 rows, default e_max", rows);
  print_note(
      "The smallest factor on all of C that some row or column shows, and what must be added, in root mean squares of "
      "C, to\n"
      "every element of a row or to a single element (medians over lines; the last column: of sums of 16 elements). A "
      "factor moves a line's sum by a share of "
      "that\n"
      "sum, which is small where elements cancel: of operands around zero a factor near 1 is not seen. `--e-max` with "
      "a\n"
      "calibrated value, or a check against a reference, sees more.");
}

}  // namespace ttrace::reproductions
