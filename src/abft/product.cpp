// Checks the lines of a product: compares the sums of C with those that the checksums of the operands give, and
// computes the threshold of each line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "abft/verify.h"

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

LineStatistics constant_line(double value, std::int64_t count) {
  const double n = static_cast<double>(count);
  return {.sum = n * value,
          .weighted = n * (n + 1) / 2 * value,
          .smallest = value,
          .largest = value,
          .absolute = n * std::fabs(value),
          .square = n * value * value,
          .count = count,
          .nonfinite = std::isfinite(value) ? 0 : count};
}

Depth depth_for(ThresholdMethod method) {
  return method == ThresholdMethod::kVariance ? Depth::kExtrema : Depth::kNorms;
}

constexpr std::size_t kLinesAThread = 1024;  // fewer take less time than starting a thread

// The sums that the operands give for C's lines in one direction. The members are named for rows of C; for columns A
// and B trade places, each transposed.
struct OperandSums {
  std::vector<LineStatistics> left;   // A's rows
  std::vector<LineStatistics> right;  // B's rows
  LineSums products;                  // A times the checksums of B's rows

  void add_left(const std::vector<LineStatistics>& part) {
#pragma omp parallel for schedule(static) if (left.size() > kLinesAThread)
    for (std::size_t i = 0; i < left.size(); ++i) abft::add(left[i], part[i]);
  }
  void add_right(const std::vector<LineStatistics>& part) { right.insert(right.end(), part.begin(), part.end()); }
  void add_products(const LineSums& part, bool weighted) {
    for (std::size_t i = 0; i < part.plain.size(); ++i) products.plain[i] += part.plain[i];
    if (!weighted) return;
    for (std::size_t i = 0; i < part.weighted.size(); ++i) products.weighted[i] += part.weighted[i];
  }
};

OperandSums zero_sums(std::int64_t lines, const Product& product) {
  const auto count = static_cast<std::size_t>(lines);
  OperandSums sums{std::vector<LineStatistics>(count), {}, {std::vector<double>(count), std::vector<double>(count)}};
  sums.right.reserve(static_cast<std::size_t>(inner_length(product)));
  return sums;
}

// One operand must be read twice, since rows need A times B's checksums, and columns need A's checksums times B. It is
// A here, the smaller operand, in slices of K, which a large last cache still has the second time. Smaller ones, which
// any would have, take longer: each reading has costs of its own, and short rows.
constexpr std::int64_t kSliceBytes = std::int64_t{64} << 20;

class Operands {
 public:
  Operands(const Reading& reading, LineReader& reader, OperandSums& rows, OperandSums& cols)
      : reading_(reading), reader_(reader), rows_(rows), cols_(cols) {}

  void add(const Product& product) {
    for (const auto& [a, b] : product.terms) {
      const std::int64_t slice =
          std::max<std::int64_t>(256, kSliceBytes / std::max<std::int64_t>(1, a.rows * size_of(a.dtype)));
      for (std::int64_t k = 0; k < a.cols; k += slice) {
        const std::int64_t length = std::min(slice, a.cols - k);
        add_slice(block(a, 0, a.rows, k, length), block(b, k, length, 0, b.cols));
      }
    }
  }

 private:
  void add_slice(const MatrixView& a, const MatrixView& b) {
    const bool weighted = reading_.weighted;
    const MatrixLines& of_a = reader_.read(a, reading_);
    const LineSums left = sums_of(of_a.cols);
    rows_.add_left(of_a.rows);
    cols_.add_right(of_a.cols);
    const MatrixLines& of_b =
        reader_.read(b, {.depth = reading_.depth, .weighted = weighted, .in_fp32 = reading_.in_fp32, .left = &left});
    const LineSums right = sums_of(of_b.rows);
    rows_.add_right(of_b.rows);
    cols_.add_left(of_b.cols);
    cols_.add_products(of_b.left_times, weighted);
    rows_.add_products(
        reader_.read(a, {.weighted = weighted, .in_fp32 = reading_.in_fp32, .right = &right}).times_right, weighted);
  }

  Reading reading_;
  LineReader& reader_;  // one for all matrices, one after the other: its memory stays in cache
  OperandSums &rows_, &cols_;
};

// The statistics of each row of the bias, which repeats one row for all, or has one number for each.
class BiasLines {
 public:
  BiasLines(const std::optional<MatrixView>& bias, Depth depth) : bias_(bias) {
    if (bias && bias->row_stride == 0) whole_ = read_lines(block(*bias, 0, 1, 0, bias->cols), {.depth = depth}).rows[0];
  }
  LineStatistics at(std::int64_t row) const {
    return whole_ ? *whole_ : constant_line(element(*bias_, row, 0), bias_->cols);
  }

 private:
  const std::optional<MatrixView>& bias_;
  std::optional<LineStatistics> whole_;
};

// Compares C's `lines`, its rows, with what `operands` give for them.
std::vector<LineCheck> check_rows(const Product& product, const OperandSums& operands,
                                  const std::vector<LineStatistics>& lines, const ThresholdOptions& options) {
  const Rounding rounding = rounding_of(product);
  const RightStatistics right = right_statistics(operands.right, product.c.cols);
  const bool right_finite = std::all_of(operands.right.begin(), operands.right.end(),
                                        [](const LineStatistics& line) { return line.nonfinite == 0; });
  double left_norm = 0;
  for (const LineStatistics& line : operands.left) left_norm = std::max(left_norm, line.absolute);
  const BiasLines biases(product.bias, depth_for(options.method));
  std::vector<LineCheck> checks(lines.size());
#pragma omp parallel for schedule(static) if (lines.size() > kLinesAThread)
  for (std::size_t i = 0; i < lines.size(); ++i) {
    LineCheck& line = checks[i];
    line.checksum = operands.products.plain[i];
    line.weighted_checksum = operands.products.weighted[i];
    line.threshold = threshold(options, rounding, left_statistics(operands.left[i]), right, left_norm);
    bool finite = operands.left[i].nonfinite == 0 && right_finite;
    if (product.bias) {
      const LineStatistics bias = biases.at(static_cast<std::int64_t>(i));
      finite &= bias.nonfinite == 0;
      line.checksum += bias.sum;
      line.weighted_checksum += bias.weighted;
      // The bias is a term of its own: a column of ones times its row.
      line.threshold += threshold(options, rounding, {.mean = 1, .magnitude = 1, .norm = 1},
                                  right_statistics({&bias, 1}, product.c.cols), 1);
    }
    line.operands_threshold = line.threshold;
    line.threshold = threshold_with_result(line, product, options, lines[i].square);
    line.sum_difference = lines[i].sum - line.checksum;
    line.weighted_difference = lines[i].weighted - line.weighted_checksum;
    line.nonfinite = lines[i].nonfinite;
    if (!finite) line.unusable = "the operands are not finite";
    if (finite && !(std::isfinite(line.sum_difference) && std::isfinite(line.threshold))) {
      line.unusable = "the sums overflow fp64";
    }
  }
  return checks;
}

// Returns whether sums of the product's lines may be off by 2^-17 of the sum of magnitudes, as those in fp32 are. All
// thresholds have room for it if C is rounded to 16 bits, because they allow for more in the same sums: V-ABFT's own
// e_max is at least 1e-3, 130 times as much (a calibrated one may be less). SEA and A-ABFT take the sums to round like C,
// by u >= 2^-11 at every addition, and at every multiplication by A's row; so does the norm bound, of K u |A| |B|. A sum
// of one element is exact. What disagrees is summed again in fp64, with weights.
bool may_sum_in_fp32(const Rounding& rounding, const ThresholdOptions& options) {
  constexpr double kLeastRelativeError = 1e-3;
  return size_of(rounding.operand) == 2 && size_of(rounding.output) == 2 &&
         options.e_max.value_or(kLeastRelativeError) >= kLeastRelativeError;
}

// A thread keeps the memory of its reader for the next product, unless there are more lines than these: to get it from
// the system again takes a fifth of the time of a product of 16-bit elements. It is some 30 MB at most.
constexpr std::int64_t kMostLinesKept = std::int64_t{1} << 15;

LineChecks check_whole_lines(const Product& product, const VerifyOptions& options) {
  if (product.c.rows > product.c.cols) {  // the left operand is the larger one: check the transposed product
    LineChecks checks = check_whole_lines(transposed(product), options);
    return {std::move(checks.cols), std::move(checks.rows)};
  }
  OperandSums rows = zero_sums(product.c.rows, product), cols = zero_sums(product.c.cols, product);
  thread_local LineReader kept;
  LineReader fresh;
  LineReader& reader = product.c.rows + product.c.cols + inner_length(product) <= kMostLinesKept ? kept : fresh;
  const bool in_fp32 = may_sum_in_fp32(rounding_of(product), options.threshold);
  const Reading reading = {
      .depth = depth_for(options.threshold.method), .weighted = options.weighted, .in_fp32 = in_fp32};
  Operands(reading, reader, rows, cols).add(product);
  const Depth depth = options.weighted ? Depth::kNorms : Depth::kSums;
  const MatrixLines& lines = reader.read(product.c, {.depth = depth, .weighted = options.weighted, .in_fp32 = in_fp32});
  return {check_rows(product, rows, lines.rows, options.threshold),
          check_rows(transposed(product), cols, lines.cols, options.threshold)};
}

// Checks rows block by block: every block of columns is a product of its own, of A and those columns of B. Results are
// in order of rows, and of blocks within a row.
std::vector<LineCheck> check_row_blocks(const Product& product, const VerifyOptions& options) {
  const std::int64_t blocks = block_count(product.c.cols, options.block);
  std::vector<LineCheck> all(static_cast<std::size_t>(product.c.rows * blocks));
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t first = i * options.block, count = std::min(options.block, product.c.cols - first);
    const auto cut = [&](const MatrixView& matrix) { return block(matrix, 0, matrix.rows, first, count); };
    Product part = product;
    for (Term& term : part.terms) term.b = cut(term.b);
    part.c = cut(part.c);
    if (part.bias) part.bias = cut(*part.bias);
    part.rounding = rounding_of(product);
    const std::vector<LineCheck> rows = check_whole_lines(part, options).rows;
    for (std::size_t row = 0; row < rows.size(); ++row)
      all[row * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(i)] = rows[row];
  }
  return all;
}

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

std::int64_t inner_length(const Product& product) {
  std::int64_t k = 0;
  for (const Term& term : product.terms) k += term.a.cols;
  return k;
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

std::int64_t block_count(std::int64_t length, std::int64_t block) {
  return block <= 0 || length == 0 ? 1 : (length + block - 1) / block;
}

double threshold_with_result(const LineCheck& line, const Product& product, const ThresholdOptions& options,
                             double square) {
  if (!std::isfinite(square)) return line.operands_threshold;  // only an error is so large
  const std::int64_t length = std::max(inner_length(product), product.c.cols);
  return std::max(line.operands_threshold,
                  threshold_of_result(options, rounding_of(product), length, std::sqrt(square)));
}

LineChecks check_lines(const Product& product, const VerifyOptions& options) {
  if (options.block <= 0) return check_whole_lines(product, options);
  return {check_row_blocks(product, options), check_row_blocks(transposed(product), options)};
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
