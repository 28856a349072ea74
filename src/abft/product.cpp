// A product and its row checks: the checksums of the operands beside the sums of C, and thresholds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ttrace/abft/verify.h"

namespace ttrace::abft {
namespace {

bool is_missing(const MatrixView& matrix) { return matrix.data == nullptr && matrix.rows > 0 && matrix.cols > 0; }

std::string shape_of(const MatrixView& matrix) { return fmt::format("[{}, {}]", matrix.rows, matrix.cols); }

std::string problem_of(const char* name, const MatrixView& matrix) {
  if (matrix.rows < 0 || matrix.cols < 0) return fmt::format("{} has the shape {}", name, shape_of(matrix));
  if (is_missing(matrix)) return fmt::format("{} {} has no data", name, shape_of(matrix));
  if (!is_floating(matrix.dtype)) return fmt::format("{} is {}, not floating-point", name, name_of(matrix.dtype));
  return {};
}

// The statistics of B's rows and what A is multiplied by: for each block a column of plain and one of weighted sums.
struct Encoded {
  std::vector<RowStatistics> rows;  // K x blocks
  std::vector<double> columns;      // 2 blocks x K
};

Encoded encode(const MatrixView& b, std::int64_t block, std::int64_t blocks) {
  Encoded encoded{row_statistics(b, block), {}};
  for (std::int64_t i = 0; i < blocks; ++i) {
    for (const bool weighted : {false, true}) {
      for (std::int64_t k = 0; k < b.rows; ++k) {
        const RowSums& sums = encoded.rows[static_cast<std::size_t>(k * blocks + i)].sums;
        encoded.columns.push_back(weighted ? sums.weighted : sums.sum);
      }
    }
  }
  return encoded;
}

RowStatistics constant_row(double value, std::int64_t count) {
  const double n = static_cast<double>(count);
  const bool finite = std::isfinite(value);
  return {.sums = {n * value, n * (n + 1) / 2 * value, finite ? 0 : count},
          .smallest = value,
          .largest = value,
          .absolute = n * std::fabs(value),
          .square = n * value * value,
          .count = count};
}

// Sums of row products over all terms; one product per row for each block, plain and weighted.
class Operands {
 public:
  Operands(const Product& product, std::int64_t block)
      : product_(product),
        block_(block),
        blocks_(block_count(product.c.cols, block)),
        left_(static_cast<std::size_t>(product.c.rows)),
        products_(static_cast<std::size_t>(product.c.rows * 2 * blocks_)),
        right_(static_cast<std::size_t>(blocks_)) {
    std::vector<std::vector<RowStatistics>> right(right_.size());
    for (const Term& term : product.terms) add_term(term, right);
    for (std::size_t i = 0; i < right.size(); ++i) {
      right_[i] = right_statistics(right[i], cols_of(static_cast<std::int64_t>(i)));
      for (const RowStatistics& row : right[i]) right_nonfinite_ |= row.sums.nonfinite > 0;
    }
    for (const RowStatistics& row : left_) left_norm_ = std::max(left_norm_, row.absolute);
    if (product.bias && product.bias->row_stride == 0) {
      bias_ = row_statistics(abft::block(*product.bias, 0, 1, 0, product.c.cols), block);
    }
  }

  LineCheck check(std::int64_t row, std::int64_t i, const RowSums& sums, const VerifyOptions& options) const {
    const Rounding rounding = rounding_of(product_);
    const RowStatistics& left = left_[static_cast<std::size_t>(row)];
    const auto at = static_cast<std::size_t>((row * blocks_ + i) * 2);
    LineCheck line;
    line.checksum = products_[at];
    line.weighted_checksum = products_[at + 1];
    line.threshold =
        threshold(options.threshold, rounding, left_statistics(left), right_[static_cast<std::size_t>(i)], left_norm_);
    bool bias_finite = true;
    if (product_.bias) {
      const RowStatistics bias = bias_of(row, i);
      bias_finite = bias.sums.nonfinite == 0;
      line.checksum += bias.sums.sum;
      line.weighted_checksum += bias.sums.weighted;
      // The bias is a term of its own: a column of ones times its row.
      line.threshold += threshold(options.threshold, rounding, {.mean = 1, .magnitude = 1, .norm = 1},
                                  right_statistics({&bias, 1}, cols_of(i)), 1);
    }
    line.sum_difference = sums.sum - line.checksum;
    line.weighted_difference = sums.weighted - line.weighted_checksum;
    line.nonfinite = sums.nonfinite;
    if (left.sums.nonfinite > 0 || right_nonfinite_ || !bias_finite) line.unusable = "the operands are not finite";
    if (line.unusable.empty() && !(std::isfinite(line.sum_difference) && std::isfinite(line.threshold))) {
      line.unusable = "the sums overflow fp64";
    }
    return line;
  }

  std::int64_t blocks() const { return blocks_; }

 private:
  void add_term(const Term& term, std::vector<std::vector<RowStatistics>>& right) {
    const Encoded encoded = encode(term.b, block_, blocks_);
    for (std::size_t i = 0; i < encoded.rows.size(); ++i) right[i % right.size()].push_back(encoded.rows[i]);
    const TimesColumns part = times(term.a, encoded.columns, 2 * blocks_);
    for (std::size_t i = 0; i < products_.size(); ++i) products_[i] += part.products[i];
    for (std::size_t i = 0; i < left_.size(); ++i) add(left_[i], part.rows[i]);
  }

  std::int64_t cols_of(std::int64_t i) const {
    return block_ > 0 ? std::min(block_, product_.c.cols - i * block_) : product_.c.cols;
  }

  RowStatistics bias_of(std::int64_t row, std::int64_t i) const {
    if (!bias_.empty()) return bias_[static_cast<std::size_t>(i)];
    return constant_row(element(*product_.bias, row, 0), cols_of(i));
  }

  const Product& product_;
  std::int64_t block_, blocks_;
  std::vector<RowStatistics> left_;     // of A's rows
  std::vector<double> products_;        // row by row, block by block: plain, weighted
  std::vector<RightStatistics> right_;  // block by block
  std::vector<RowStatistics> bias_;     // of a repeated row, block by block
  double left_norm_ = 0;
  bool right_nonfinite_ = false;
};

}  // namespace

Product transposed(const Product& product) {
  Product result;
  for (const Term& term : product.terms) result.terms.push_back({transposed(term.b), transposed(term.a)});
  result.c = transposed(product.c);
  result.rounding = product.rounding;
  if (product.bias) result.bias = transposed(*product.bias);
  return result;
}

Rounding rounding_of(const Product& product) {
  if (product.rounding) return *product.rounding;
  Rounding rounding{product.c.dtype, product.c.dtype};
  std::int64_t widest = 0;
  for (const Term& term : product.terms) {
    for (const MatrixView& operand : {term.a, term.b}) {
      if (size_of(operand.dtype) > widest) rounding.operand = operand.dtype;
      widest = std::max(widest, size_of(operand.dtype));
    }
  }
  return rounding;
}

double exact_element(const Product& product, std::int64_t row, std::int64_t col) {
  double sum = product.bias ? element(*product.bias, row, col) : 0;
  std::vector<double> left, right;
  for (const auto& [a, b] : product.terms) {
    left.resize(static_cast<std::size_t>(a.cols));
    right.resize(left.size());
    read(a, row, 1, 0, a.cols, left.data());
    read(transposed(b), col, 1, 0, b.rows, right.data());
    double part = 0;
    for (std::size_t k = 0; k < left.size(); ++k) part += left[k] * right[k];
    sum += part;
  }
  return sum;
}

std::vector<LineCheck> check_rows(const Product& product, const VerifyOptions& options) {
  const Operands operands(product, options.block);
  const std::vector<RowSums> sums = row_sums(product.c, options.block);
  std::vector<LineCheck> lines(sums.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = static_cast<std::int64_t>(i);
    lines[i] = operands.check(line / operands.blocks(), line % operands.blocks(), sums[i], options);
  }
  return lines;
}

std::string problem_of(const Product& product) {
  const MatrixView& c = product.c;
  if (product.terms.empty()) return "there are no operands";
  if (std::string problem = problem_of("C", c); !problem.empty()) return problem;
  for (const auto& [a, b] : product.terms) {
    if (std::string problem = problem_of("A", a); !problem.empty()) return problem;
    if (std::string problem = problem_of("B", b); !problem.empty()) return problem;
    if (a.rows != c.rows || a.cols != b.rows || b.cols != c.cols) {
      return fmt::format("A {} times B {} is not C {}", shape_of(a), shape_of(b), shape_of(c));
    }
  }
  if (product.bias) {
    const MatrixView& bias = *product.bias;
    if (std::string problem = problem_of("the bias", bias); !problem.empty()) return problem;
    if (bias.rows != c.rows || bias.cols != c.cols || (bias.row_stride != 0 && bias.col_stride != 0)) {
      return fmt::format("the bias {} is no row or column repeated to {}", shape_of(bias), shape_of(c));
    }
  }
  if (c.rows == 0 || c.cols == 0) return "C has no elements";
  return {};
}

}  // namespace ttrace::abft
