// Rows and columns are checked apart, a column being a row of the transposed product. Where their sums disagree, the
// place comes from the ratio of the differences, or else from where wrong rows and wrong columns cross. Each place is
// confirmed by its own inner product: with two errors in a row the ratio names a third, innocent element.
#include "ttrace/abft/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "ttrace/numeric/convert.h"

namespace ttrace::abft {
namespace {

constexpr double kRoundingOfSums = 1e-12;  // a huge error swallows so much of the line's other elements
constexpr double kPartOfThreshold = 0.1;   // an element off by more, in a wrong row and column, is wrong itself
constexpr std::int64_t kCandidates = 4;    // elements that may be computed again, for each row and column of C

using Place = std::pair<std::int64_t, std::int64_t>;  // row, column

double rounded(double value, Dtype dtype) {
  std::byte bytes[sizeof(double)];
  narrow(&value, dtype, 1, bytes);
  widen(bytes, dtype, 1, &value);
  return value;
}

// Infinity (in e4m3fn NaN) is what C's dtype makes of such a value. A sum that ends just below the border may have
// rounded across it.
bool overflows_to(double value, double exact, Dtype dtype) {
  const double beyond = rounded(exact * (1 + 0x1p-6), dtype);
  return beyond == value || (std::isnan(beyond) && std::isnan(value));
}

// The rows of the product, or of the transposed one.
class Side {
 public:
  Side(Product product, std::vector<LineCheck> lines, const VerifyOptions& options)
      : product_(std::move(product)),
        block_(options.block > 0 ? options.block : product_.c.cols),
        blocks_(block_count(product_.c.cols, options.block)),
        lines_(std::move(lines)) {}

  const LineCheck& line(std::size_t at) const { return lines_[at]; }
  std::span<const LineCheck> lines() const { return lines_; }
  std::int64_t row_of(std::size_t at) const { return static_cast<std::int64_t>(at) / blocks_; }
  std::int64_t col_of(std::size_t at) const { return static_cast<std::int64_t>(at) % blocks_ * block_; }
  std::int64_t cols_of(std::size_t at) const { return std::min(block_, product_.c.cols - col_of(at)); }

  // The lines whose sums disagree.
  std::vector<std::size_t> wrong() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].unusable.empty() && lines_[i].disagrees()) result.push_back(i);
    }
    return result;
  }

  // Sums the element's line again, with `exact` in its place.
  void replace(Place place, double exact) {
    replaced_[place] = exact;
    const auto at = static_cast<std::size_t>(place.first * blocks_ + place.second / block_);
    const std::int64_t row = place.first, col = col_of(at), cols = cols_of(at);
    std::vector<double> values(static_cast<std::size_t>(cols));
    read(product_.c, row, 1, col, cols, values.data());
    for (auto it = replaced_.lower_bound({row, col}); it != replaced_.lower_bound({row, col + cols}); ++it) {
      values[static_cast<std::size_t>(it->first.second - col)] = it->second;
    }
    const LineStatistics sums =
        read_lines(row_major(values.data(), Dtype::kFloat64, 1, cols), {.depth = Depth::kSums}).rows.front();
    LineCheck& line = lines_[at];
    line.sum_difference = sums.sum - line.checksum;
    line.weighted_difference = sums.weighted - line.weighted_checksum;
    line.nonfinite = sums.nonfinite;
  }

 private:
  Product product_;
  std::int64_t block_, blocks_;
  std::vector<LineCheck> lines_;
  std::map<Place, double> replaced_;
};

class Verifier {
 public:
  Verifier(const Product& product, LineChecks checks, const VerifyOptions& options)
      : product_(product),
        rows_(product, std::move(checks.rows), options),
        cols_(transposed(product), std::move(checks.cols), options) {
    for (const Side* side : {&rows_, &cols_}) {
      for (const LineCheck& line : side->lines()) {
        if (line.unusable.empty() && !line.disagrees() && line.threshold > 0) {
          result_.largest_ratio = std::max(result_.largest_ratio, std::fabs(line.sum_difference) / line.threshold);
        }
      }
    }
  }

  Verification run() {
    if (resolve_nonfinite()) {
      resolve_by_ratio(Line::kRow);
      resolve_by_ratio(Line::kColumn);
      resolve_crossings();
    }
    name_lines(Line::kRow);
    name_lines(Line::kColumn);
    conclude();
    return std::move(result_);
  }

 private:
  Side& side(Line line) { return line == Line::kRow ? rows_ : cols_; }
  static Place turned(Line line, Place place) { return line == Line::kRow ? place : Place{place.second, place.first}; }
  std::int64_t candidates() const { return kCandidates * (product_.c.rows + product_.c.cols); }

  void add_fault(Line line, Place place, double exact, double difference, double allowed) {
    result_.faults.push_back({line, place.first, place.second, element(product_.c, place.first, place.second),
                              rounded(exact, product_.c.dtype), difference, allowed});
    replace(place, exact);
  }
  void replace(Place place, double exact) {
    rows_.replace(place, exact);
    cols_.replace(turned(Line::kColumn, place), exact);
  }

  // Infinity and NaN leave nothing of a sum. Each is computed again: where the operands do overflow C's dtype, it is
  // right. False if there are too many.
  bool resolve_nonfinite() {
    std::set<Place> places;
    for (const Line line : {Line::kRow, Line::kColumn}) {
      for (const std::size_t at : side(line).wrong()) {
        if (side(line).line(at).nonfinite > 0) add_nonfinite(line, at, places);
        if (std::ssize(places) > candidates()) return false;
      }
    }
    for (const Place& place : places) {
      const double exact = exact_element(product_, place.first, place.second);
      if (overflows_to(element(product_.c, place.first, place.second), exact, product_.c.dtype)) {
        replace(place, exact);
        ++result_.overflowed;
      } else {
        add_fault(Line::kRow, place, exact, std::numeric_limits<double>::quiet_NaN(), 0);
      }
    }
    return true;
  }

  void add_nonfinite(Line line, std::size_t at, std::set<Place>& places) {
    const Side& lines = side(line);
    for (std::int64_t i = 0; i < lines.cols_of(at); ++i) {
      const Place place = turned(line, {lines.row_of(at), lines.col_of(at) + i});
      if (!std::isfinite(element(product_.c, place.first, place.second))) places.insert(place);
    }
  }

  void resolve_by_ratio(Line line) {
    for (const std::size_t at : side(line).wrong()) {
      const LineCheck check = side(line).line(at);
      const auto found = locate(check.sum_difference, check.weighted_difference, side(line).cols_of(at));
      if (!found) continue;
      const Place place = turned(line, {side(line).row_of(at), side(line).col_of(at) + *found});
      const double exact = exact_element(product_, place.first, place.second);
      const double error = element(product_.c, place.first, place.second) - exact;
      const double rest = std::fabs(check.sum_difference - error);
      // Just above the threshold a right element's rounding would do, too: the error must make up most of it.
      const double unexplained = std::min(check.threshold, std::fabs(check.sum_difference) / 2);
      if (rest > unexplained + kRoundingOfSums * std::fabs(error)) continue;
      add_fault(line, place, exact, check.sum_difference, check.threshold);
    }
  }

  // Several errors in a line: wherever a wrong row and a wrong column cross.
  void resolve_crossings() {
    const std::vector<std::size_t> rows = rows_.wrong(), cols = cols_.wrong();
    if (std::ssize(rows) * std::ssize(cols) > candidates()) return;
    for (const std::size_t row : rows) {
      for (const std::size_t col : cols) {
        const Place place = {rows_.row_of(row), cols_.row_of(col)};
        if (place.second < rows_.col_of(row) || place.second >= rows_.col_of(row) + rows_.cols_of(row)) continue;
        if (place.first < cols_.col_of(col) || place.first >= cols_.col_of(col) + cols_.cols_of(col)) continue;
        const LineCheck check = rows_.line(row);
        const double exact = exact_element(product_, place.first, place.second);
        const double error = std::fabs(element(product_.c, place.first, place.second) - exact);
        if (error <= kPartOfThreshold * std::min(check.threshold, cols_.line(col).threshold)) continue;
        add_fault(Line::kRow, place, exact, check.sum_difference, check.threshold);
      }
    }
  }

  // What still disagrees has no place.
  void name_lines(Line line) {
    for (const std::size_t at : side(line).wrong()) {
      const LineCheck& check = side(line).line(at);
      Fault fault{.line = line, .difference = check.sum_difference, .threshold = check.threshold};
      (line == Line::kRow ? fault.row : fault.col) = side(line).row_of(at);
      result_.faults.push_back(fault);
    }
  }

  void conclude() {
    std::stable_sort(result_.faults.begin(), result_.faults.end(), [](const Fault& a, const Fault& b) {
      return std::make_tuple(!a.located(), a.line != Line::kRow && !a.located(), a.row, a.col) <
             std::make_tuple(!b.located(), b.line != Line::kRow && !b.located(), b.row, b.col);
    });
    std::string_view reason;
    result_.cols_checked = usable(cols_, reason);
    result_.rows_checked = usable(rows_, reason);
    const MatrixView& c = product_.c;
    if (!result_.faults.empty()) {
      result_.outcome = Outcome::kFaulty;
    } else if (result_.rows_checked < c.rows && result_.cols_checked < c.cols) {
      result_.reason =
          fmt::format("{} of {} rows and {} of {} columns cannot be summed: {}", c.rows - result_.rows_checked, c.rows,
                      c.cols - result_.cols_checked, c.cols, reason);
    } else {
      result_.outcome = Outcome::kVerified;
    }
  }

  // How many rows have no block that is unusable.
  static std::int64_t usable(const Side& side, std::string_view& reason) {
    std::set<std::int64_t> unusable;
    for (std::size_t i = 0; i < side.lines().size(); ++i) {
      if (side.line(i).unusable.empty()) continue;
      unusable.insert(side.row_of(i));
      reason = side.line(i).unusable;
    }
    return side.row_of(side.lines().size()) - std::ssize(unusable);
  }

  const Product& product_;
  Side rows_, cols_;
  Verification result_;
};

}  // namespace

Verification verify(const Product& product, const VerifyOptions& options) {
  Verification refused;
  refused.reason = problem_of(product);
  if (!refused.reason.empty()) return refused;
  std::int64_t k = 0;
  for (const Term& term : product.terms) k += term.a.cols;
  refused.reason = not_applicable(options.threshold, rounding_of(product), k);
  if (!refused.reason.empty()) return refused;
  return Verifier(product, check_lines(product, options), options).run();
}

}  // namespace ttrace::abft
