#include "abft/threshold.h"

#include <algorithm>
#include <cmath>

namespace ttrace::abft {
namespace {

// (m - mu)(mu - l) >= variance (V-ABFT, theorem 1). Rounding of the mean must not make it negative.
double variance_bound(const LineStatistics& row, double mean) {
  return std::max(row.largest - mean, 0.0) * std::max(mean - row.smallest, 0.0);
}

double mean_of(const LineStatistics& row) { return row.count == 0 ? 0 : row.sum / static_cast<double>(row.count); }

bool is_narrow(Dtype dtype) { return dtype != Dtype::kFloat64 && dtype != Dtype::kFloat32; }

double relative_error(const ThresholdOptions& options, const Rounding& rounding, std::int64_t length) {
  return options.e_max.value_or(default_relative_error(rounding, options.fp32_products, length));
}

// Elements that are rounded by up to u each, in directions of their own, move their sum by u / sqrt(3) times their norm:
// e_max, which is 2 u, has 5 of these standard deviations in 1.5 of it. A row of independent operands is allowed 2.5.
constexpr double kRelativeErrorsOfNorm = 1.5;

// V-ABFT, Algorithm 1 (equation 23). The hypotenuse adds the variances of terms 2 and 3.
double variance_threshold(const ThresholdOptions& options, const Rounding& rounding, const LeftStatistics& left,
                          const RightStatistics& right) {
  const double n = static_cast<double>(right.cols), mean = std::fabs(left.mean), deviation = std::sqrt(left.variance);
  const double right_deviation = std::sqrt(right.variance);
  const double bias = n * mean * right.mean;
  const double terms23 =
      std::hypot(std::sqrt(n) * mean * right_deviation, n * deviation * std::sqrt(right.mean_square));
  const double term4 = std::sqrt(n) * deviation * right_deviation;
  const double e_max = relative_error(options, rounding, std::max(right.rows, right.cols));
  return e_max * (bias + options.c_sigma * terms23 + options.c_sigma * term4);
}

// The t of 2^-t. Of fp32 the paper takes the stored bits, 23, of the others one more: its tables 4 to 6 come out so.
double precision_bits(Dtype dtype) {
  const double bits = -std::log2(epsilon_of(dtype));
  return dtype == Dtype::kFloat32 ? bits : bits + 1;
}

// A-ABFT (V-ABFT, equation 26), for the inner product of A's row with B's row sums. The paper computes y as
// max|A| max|row sum of B|; a row sum can vanish by cancellation, so it is the sum of magnitudes here. For the
// positive matrices of its table 6 the two are the same. Equation 26 is of one sum; here two are compared, of K and of
// N elements, and n is the longer: for the paper's square matrices that is the same, too.
double probabilistic_threshold(const ThresholdOptions& options, const Rounding& rounding, const LeftStatistics& left,
                               const RightStatistics& right) {
  const double n = static_cast<double>(std::max(right.rows, right.cols));
  const double y = options.largest.value_or(left.magnitude * right.largest_absolute);
  const double deviation = std::sqrt((n * (n + 1) * (n + 0.5) + 2 * n) / 24) * y;
  return 3 * std::ldexp(deviation, -static_cast<int>(precision_bits(rounding.output)));
}

// |E| <= u ((K + 2N - 2) |a| sum_n |b_n| + K |a| |B r|), Euclidean norms of A's row a, of B's columns b_n and of its
// row sums B r. The SEA paper (FTCS 1993) was not at hand; to first order in u the bound follows term by term from
// |fl(x y) - x y| <= K u |x| |y|: K |a| |b_n| for each element of C's row, (N - 1) |a| sum_n |b_n| for adding them up,
// as much for B's row sums, times a, and K |a| |B r| for their product with a. sum_n |b_n| <= sqrt(N) |B|_F needs no
// norm of each column.
double simplified_threshold(const Rounding& rounding, const LeftStatistics& left, const RightStatistics& right) {
  const double k = static_cast<double>(right.rows), n = static_cast<double>(right.cols);
  const double columns = std::sqrt(n) * right.norm;
  return unit_roundoff(rounding.output) * left.norm * ((k + 2 * n - 2) * columns + k * right.checksum_norm);
}

// The SDC study's equation 6, whose u is eps as torch.finfo has it, not half of it.
double norm_threshold(const Rounding& rounding, const RightStatistics& right, double left_norm) {
  const double k = static_cast<double>(right.rows);
  return k * epsilon_of(rounding.output) * left_norm * right.largest_absolute;
}

// Returns what rounding below the normal numbers adds, which is absolute: half a unit of the smallest number for fp16
// and fp8. Products in fp32 may be flushed to zero, at every multiplication.
double underflow(const Rounding& rounding, const RightStatistics& right) {
  const double n = static_cast<double>(right.cols), k = static_cast<double>(right.rows);
  double rounded = 0;
  if (rounding.output == Dtype::kFloat16) rounded = 0x1p-25;
  if (rounding.output == Dtype::kFloat8E4M3) rounded = 0x1p-10;
  if (rounding.output == Dtype::kFloat8E5M2) rounded = 0x1p-17;
  const double flushed =
      rounding.operand == Dtype::kFloat64 && rounding.output == Dtype::kFloat64 ? 0x1p-1022 : 0x1p-126;
  return n * ((k + 1) * flushed + rounded);
}

}  // namespace

double unit_roundoff(Dtype dtype) { return epsilon_of(dtype) / 2; }

double largest_relative_error(Platform platform, const Rounding& rounding, std::int64_t length) {
  const double n = static_cast<double>(length);
  if (is_narrow(rounding.output)) {
    // The product is accumulated in fp32 and rounded once, at the output: about 2 u, whatever the operands are.
    if (rounding.output == Dtype::kBFloat16) return 8e-3;
    if (rounding.output == Dtype::kFloat16) return 1e-3;
    return 2 * unit_roundoff(rounding.output);
  }
  const bool is_double = rounding.output == Dtype::kFloat64;
  double e_max = 0;
  switch (platform) {
    case Platform::kCpu:
      e_max = is_double ? 6e-16 : 4e-7;
      break;
    case Platform::kGpu:
      e_max = is_double ? 1.0e-17 * std::sqrt(n) + 2.5e-16 : 5.0e-9 * std::sqrt(n) + 1.2e-7;
      break;
    case Platform::kNpu:  // the table has no fp64: as many units of the last place as in fp32
      e_max = (is_double ? 0x1p-29 : 1.0) * 2e-6 * std::sqrt(n / 1024);
      break;
  }
  // Narrow operands that are verified online, in their fp32 accumulator: the paper says "about 1e-6".
  return is_narrow(rounding.operand) ? std::max(e_max, 1e-6) : e_max;
}

double default_relative_error(const Rounding& rounding, Fp32Products fp32_products, std::int64_t length) {
  if (is_narrow(rounding.output)) return largest_relative_error(Platform::kCpu, rounding, length);
  const double accumulated = unit_roundoff(rounding.output) * (16 + static_cast<double>(length) / 2);
  if (rounding.operand != Dtype::kFloat32 || rounding.output != Dtype::kFloat32) return accumulated;
  // Each operand loses what lies behind its last bit; hardware may cut it off.
  switch (fp32_products) {
    case Fp32Products::kFull:
      return accumulated;
    case Fp32Products::kTf32:
      return accumulated + 2 * 0x1p-10;
    case Fp32Products::kBFloat16:
      return accumulated + 2 * 0x1p-7;
  }
  return accumulated;
}

Fp32Products fp32_products_of(std::string_view device, std::string_view precision) {
  if (precision == "highest") return Fp32Products::kFull;
  if (precision == "high") return Fp32Products::kTf32;
  if (precision == "medium") return Fp32Products::kBFloat16;
  if (device == "cpu") return Fp32Products::kFull;
  return device == "cuda" ? Fp32Products::kTf32 : Fp32Products::kBFloat16;
}

LeftStatistics left_statistics(const LineStatistics& row) {
  const double mean = mean_of(row);
  if (row.count == 0) return {};
  return {mean, variance_bound(row, mean), std::max(std::fabs(row.smallest), std::fabs(row.largest)),
          std::sqrt(row.square)};
}

RightStatistics right_statistics(std::span<const LineStatistics> rows, std::int64_t cols) {
  RightStatistics all;
  all.rows = static_cast<std::int64_t>(rows.size());
  all.cols = cols;
  double square = 0, checksum_square = 0;
  for (const LineStatistics& row : rows) {
    const double mean = mean_of(row);
    all.mean += std::fabs(mean);
    all.mean_square += mean * mean;
    if (row.count > 0) all.variance += variance_bound(row, mean);
    all.largest_absolute = std::max(all.largest_absolute, row.absolute);
    square += row.square;
    checksum_square += row.sum * row.sum;
  }
  all.norm = std::sqrt(square);
  all.checksum_norm = std::sqrt(checksum_square);
  return all;
}

double threshold(const ThresholdOptions& options, const Rounding& rounding, const LeftStatistics& left,
                 const RightStatistics& right, double left_norm) {
  const auto of_method = [&] {
    switch (options.method) {
      case ThresholdMethod::kVariance:
        return variance_threshold(options, rounding, left, right);
      case ThresholdMethod::kProbabilistic:
        return probabilistic_threshold(options, rounding, left, right);
      case ThresholdMethod::kSimplified:
        return simplified_threshold(rounding, left, right);
      case ThresholdMethod::kNorm:
        return norm_threshold(rounding, right, left_norm);
    }
    return 0.0;
  };
  return options.roundings * (underflow(rounding, right) + of_method());
}

double threshold_of_result(const ThresholdOptions& options, const Rounding& rounding, std::int64_t length,
                           double norm) {
  if (options.method != ThresholdMethod::kVariance) return 0;
  return options.roundings * kRelativeErrorsOfNorm * relative_error(options, rounding, length) * norm;
}

std::string_view not_applicable(const ThresholdOptions& options, const Rounding& rounding, std::int64_t k) {
  if (!is_floating(rounding.output) || !is_floating(rounding.operand)) return "the matrices are not floating-point";
  // SDC study, appendix D.4: the bound rests on k u <= 0.01 (Golub and Van Loan, equation 2.7.11).
  if (options.method == ThresholdMethod::kNorm && static_cast<double>(k) * epsilon_of(rounding.output) > 0.01) {
    return "the norm bound needs k u <= 0.01: too few digits for so long a sum";
  }
  return {};
}

}  // namespace ttrace::abft
