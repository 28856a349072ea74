// Rows and columns are checked separately; a column is a row of the transposed product. If the sums of a line disagree,
// the ratio of the two differences locates the wrong element, or else the crossing of a wrong row and a wrong column
// does. The element's own inner product then confirms it, since the ratio of two errors in a line can name a third,
// right one. Of an error that is little above the rounding of its line the ratio names a neighbour: then the line is
// multiplied again.
#include "abft/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "numeric/convert.h"

namespace ttrace::abft {
namespace {

constexpr double kRoundingOfSums = 1e-12;  // share of a huge error that the rounding of its line's sum may hide
constexpr double kPartOfThreshold = 0.1;   // an element at a crossing that is off by more than this is wrong
constexpr std::int64_t kCandidates = 4;    // elements that are computed again at most, times rows + columns

using Position = std::pair<std::int64_t, std::int64_t>;  // row, column

double rounded(double value, Dtype dtype) {
  std::byte bytes[sizeof(double)];
  narrow(&value, dtype, 1, bytes);
  widen(bytes, dtype, 1, &value);
  return value;
}

// Returns whether `exact` is so large that C's dtype makes `value` of it: infinity, in e4m3fn NaN. A sum that ends just
// below the border may have rounded across it.
bool overflows_to(double value, double exact, Dtype dtype) {
  const double beyond = rounded(exact * (1 + 0x1p-6), dtype);
  return beyond == value || (std::isnan(beyond) && std::isnan(value));
}

bool is_wrong(const LineCheck& line) { return line.unusable.empty() && line.disagrees(); }

bool any_disagrees(const LineChecks& checks) {
  return std::any_of(checks.rows.begin(), checks.rows.end(), is_wrong) ||
         std::any_of(checks.cols.begin(), checks.cols.end(), is_wrong);
}

// The checked lines of one direction: rows of the product, or of the transposed product. Line `at` is block
// `at % blocks_` of row `at / blocks_`.
class Side {
 public:
  Side(Product product, std::vector<LineCheck> lines, const VerifyOptions& options)
      : product_(std::move(product)),
        block_(options.block > 0 ? options.block : product_.c.cols),
        blocks_(block_count(product_.c.cols, options.block)),
        threshold_(options.threshold),
        lines_(std::move(lines)) {}

  const LineCheck& line(std::size_t at) const { return lines_[at]; }
  std::span<const LineCheck> lines() const { return lines_; }
  std::int64_t row_of(std::size_t at) const { return static_cast<std::int64_t>(at) / blocks_; }
  std::int64_t col_of(std::size_t at) const { return static_cast<std::int64_t>(at) % blocks_ * block_; }
  std::int64_t cols_of(std::size_t at) const { return std::min(block_, product_.c.cols - col_of(at)); }

  // Returns the lines whose sums disagree.
  std::vector<std::size_t> wrong_lines() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (is_wrong(lines_[i])) result.push_back(i);
    }
    return result;
  }

  // Returns what the sums of the line say of its element in this position, of which `exact` was put in its place.
  std::optional<SumsValue> value_by_sums(Position position, double exact) const {
    const LineCheck& line = lines_[line_of(position)];
    const std::int64_t col = position.second / block_ * block_;
    const auto first = replaced_.lower_bound({position.first, col});
    const bool is_alone = first != replaced_.end() && first->first == position &&
                          std::next(first) == replaced_.lower_bound({position.first, col + block_});
    if (!is_alone || !line.unusable.empty() || line.nonfinite > 0 || line.disagrees()) return std::nullopt;
    return SumsValue{exact - line.sum_difference, line.threshold};
  }

  // Sums the element's line again, with `exact` instead of the recorded value.
  void replace(Position position, double exact) {
    replaced_[position] = exact;
    const std::size_t at = line_of(position);
    const std::int64_t row = position.first, col = col_of(at), cols = cols_of(at);
    std::vector<double> values(static_cast<std::size_t>(cols));
    read(product_.c, row, 1, col, cols, values.data());
    for (auto it = replaced_.lower_bound({row, col}); it != replaced_.lower_bound({row, col + cols}); ++it) {
      values[static_cast<std::size_t>(it->first.second - col)] = it->second;
    }
    const LineStatistics sums =
        read_lines(row_major(values.data(), Dtype::kFloat64, 1, cols), {.depth = Depth::kNorms, .weighted = true})
            .rows.front();
    LineCheck& line = lines_[at];
    line.sum_difference = sums.sum - line.checksum;
    line.weighted_difference = sums.weighted - line.weighted_checksum;
    line.nonfinite = sums.nonfinite;
    line.threshold = threshold_with_result(line, product_, threshold_, sums.square);
  }

 private:
  std::size_t line_of(Position position) const {
    return static_cast<std::size_t>(position.first * blocks_ + position.second / block_);
  }

  Product product_;
  std::int64_t block_, blocks_;
  ThresholdOptions threshold_;
  std::vector<LineCheck> lines_;
  std::map<Position, double> replaced_;
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
      resolve_by_multiplying(Line::kRow);
      resolve_by_multiplying(Line::kColumn);
    }
    add_sums_values();
    add_unlocated(Line::kRow);
    add_unlocated(Line::kColumn);
    finish_result();
    return std::move(result_);
  }

 private:
  Side& side(Line line) { return line == Line::kRow ? rows_ : cols_; }
  // Translates between a position in the lines of one direction and one in the product; its own inverse.
  static Position in_product(Line line, Position position) {
    return line == Line::kRow ? position : Position{position.second, position.first};
  }
  std::int64_t candidates() const { return kCandidates * (product_.c.rows + product_.c.cols); }

  void add_fault(Line line, Position position, double exact, double difference, double allowed) {
    result_.faults.push_back({line, position.first, position.second,
                              element(product_.c, position.first, position.second), rounded(exact, product_.c.dtype),
                              difference, allowed});
    exact_[position] = exact;
    replace(position, exact);
  }
  void replace(Position position, double exact) {
    rows_.replace(position, exact);
    cols_.replace(in_product(Line::kColumn, position), exact);
  }

  // Infinity and NaN make a sum useless. Each such element is computed again; it is right if the operands do overflow
  // C's dtype. Returns false if there are too many of them.
  bool resolve_nonfinite() {
    std::set<Position> positions;
    for (const Line line : {Line::kRow, Line::kColumn}) {
      for (const std::size_t at : side(line).wrong_lines()) {
        if (side(line).line(at).nonfinite > 0) add_nonfinite(line, at, positions);
        if (std::ssize(positions) > candidates()) return false;
      }
    }
    for (const Position& position : positions) {
      const double exact = exact_element(product_, position.first, position.second);
      if (overflows_to(element(product_.c, position.first, position.second), exact, product_.c.dtype)) {
        replace(position, exact);
        ++result_.overflowed;
      } else {
        add_fault(Line::kRow, position, exact, std::numeric_limits<double>::quiet_NaN(), 0);
      }
    }
    return true;
  }

  void add_nonfinite(Line line, std::size_t at, std::set<Position>& positions) {
    const Side& lines = side(line);
    for (std::int64_t i = 0; i < lines.cols_of(at); ++i) {
      const Position position = in_product(line, {lines.row_of(at), lines.col_of(at) + i});
      if (!std::isfinite(element(product_.c, position.first, position.second))) positions.insert(position);
    }
  }

  void resolve_by_ratio(Line line) {
    for (const std::size_t at : side(line).wrong_lines()) {
      const LineCheck check = side(line).line(at);
      const auto found = locate(check.sum_difference, check.weighted_difference, side(line).cols_of(at));
      if (!found) continue;
      const Position position = in_product(line, {side(line).row_of(at), side(line).col_of(at) + *found});
      const double exact = exact_element(product_, position.first, position.second);
      if (!is_rounded(position, exact) &&
          explains(check, element(product_.c, position.first, position.second) - exact)) {
        add_fault(line, position, exact, check.sum_difference, check.threshold);
      }
    }
  }

  // Returns whether the element is as right as C's dtype can be.
  bool is_rounded(Position position, double exact) const {
    return element(product_.c, position.first, position.second) == rounded(exact, product_.c.dtype);
  }

  // Returns whether one element that is off by `error` is why the sums of its line disagree.
  static bool explains(const LineCheck& check, double error) {
    const double rest = std::fabs(check.sum_difference - error);
    // Just above the threshold, the rounding of a right element would leave as little: the error must explain most of
    // it.
    const double unexplained = std::min(check.threshold, std::fabs(check.sum_difference) / 2);
    return rest <= unexplained + kRoundingOfSums * std::fabs(error);
  }

  // Multiplies each line again whose sums still disagree, unless there are too many of them, and takes the element that
  // is furthest off.
  void resolve_by_multiplying(Line line) {
    const std::vector<std::size_t> wrong = side(line).wrong_lines();
    std::int64_t elements = 0;
    for (const std::size_t at : wrong) elements += side(line).cols_of(at);
    if (elements > candidates()) return;
    for (const std::size_t at : wrong) {
      const LineCheck check = side(line).line(at);
      Position worst;
      double exact_of_worst = 0, largest = 0;
      for (std::int64_t i = 0; i < side(line).cols_of(at); ++i) {
        const Position position = in_product(line, {side(line).row_of(at), side(line).col_of(at) + i});
        const double exact = exact_element(product_, position.first, position.second);
        const double error = element(product_.c, position.first, position.second) - exact;
        if (exact_.contains(position) || is_rounded(position, exact)) continue;
        if (!(std::fabs(error) > std::fabs(largest))) continue;
        worst = position;
        exact_of_worst = exact;
        largest = error;
      }
      if (largest != 0 && explains(check, largest)) {
        add_fault(line, worst, exact_of_worst, check.sum_difference, check.threshold);
      }
    }
  }

  void add_sums_values() {
    for (Fault& fault : result_.faults) {
      const Position position = {fault.row, fault.col};
      fault.by_row = rows_.value_by_sums(position, exact_.at(position));
      fault.by_col = cols_.value_by_sums(in_product(Line::kColumn, position), exact_.at(position));
    }
  }

  // Finds several errors in a line: examines each element where a wrong row and a wrong column cross.
  void resolve_crossings() {
    const std::vector<std::size_t> rows = rows_.wrong_lines(), cols = cols_.wrong_lines();
    if (std::ssize(rows) * std::ssize(cols) > candidates()) return;
    for (const std::size_t row : rows) {
      for (const std::size_t col : cols) {
        const Position position = {rows_.row_of(row), cols_.row_of(col)};
        if (position.second < rows_.col_of(row) || position.second >= rows_.col_of(row) + rows_.cols_of(row)) continue;
        if (position.first < cols_.col_of(col) || position.first >= cols_.col_of(col) + cols_.cols_of(col)) continue;
        const LineCheck check = rows_.line(row);
        const double exact = exact_element(product_, position.first, position.second);
        const double error = std::fabs(element(product_.c, position.first, position.second) - exact);
        if (is_rounded(position, exact)) continue;
        if (error <= kPartOfThreshold * std::min(check.threshold, cols_.line(col).threshold)) continue;
        add_fault(Line::kRow, position, exact, check.sum_difference, check.threshold);
      }
    }
  }

  // Adds the lines that still disagree as faults without an element.
  void add_unlocated(Line line) {
    for (const std::size_t at : side(line).wrong_lines()) {
      const LineCheck& check = side(line).line(at);
      Fault fault{.line = line, .difference = check.sum_difference, .threshold = check.threshold};
      (line == Line::kRow ? fault.row : fault.col) = side(line).row_of(at);
      result_.faults.push_back(fault);
    }
  }

  void finish_result() {
    std::stable_sort(result_.faults.begin(), result_.faults.end(), [](const Fault& a, const Fault& b) {
      return std::make_tuple(!a.located(), a.line != Line::kRow && !a.located(), a.row, a.col) <
             std::make_tuple(!b.located(), b.line != Line::kRow && !b.located(), b.row, b.col);
    });
    std::string_view reason;
    result_.cols_checked = count_usable(cols_, reason);
    result_.rows_checked = count_usable(rows_, reason);
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

  // Counts the rows without an unusable block. `reason` becomes that of the last unusable one.
  static std::int64_t count_usable(const Side& side, std::string_view& reason) {
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
  std::map<Position, double> exact_;  // of located faults, not rounded
  Verification result_;
};

}  // namespace

Verification verify(const Product& product, const VerifyOptions& options) {
  Verification refused;
  refused.reason = problem_of(product);
  if (!refused.reason.empty()) return refused;
  refused.reason = not_applicable(options.threshold, rounding_of(product), inner_length(product));
  if (!refused.reason.empty()) return refused;
  LineChecks checks = check_lines(product, options);
  if (any_disagrees(checks)) {
    VerifyOptions weighted = options;
    weighted.weighted = true;
    checks = check_lines(product, weighted);
  }
  return Verifier(product, std::move(checks), options).run();
}

}  // namespace ttrace::abft
