// Computes how far the two sums of a row may be apart by rounding alone: E_m = sum of C's row m - A's row m times the
// row sums of B (V-ABFT, equation 11). Four methods, one interface. All need O(n) statistics, taken in the pass that
// sums.
//
// V-ABFT assumes that the rows of A and the columns of B are independent. For operands that are strongly correlated
// (a matrix times its own transpose; the gradient of a loss of squares, which is the output, times the weight) elements
// of C are larger than it expects, and so is their rounding: `threshold_of_result` has that, from C itself. SEA bounds
// every product.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "abft/checksum.h"

namespace ttrace::abft {

enum class ThresholdMethod {
  kVariance,       // V-ABFT, Algorithm 1
  kProbabilistic,  // A-ABFT: three standard deviations (V-ABFT, equation 26)
  kSimplified,     // SEA: Roy-Chowdhury and Banerjee's simplified error analysis; an analytical bound
  kNorm,           // k u |A| |B| in the infinity norm (SDC study of LLM training, equations 6 and 7)
};

// The kinds of processor of V-ABFT's table 7.
enum class Platform { kCpu, kGpu, kNpu };

// What products of fp32 matrices round their operands to before they multiply: nothing, TF32's 10 bits, bf16's 7.
enum class Fp32Products { kFull, kTf32, kBFloat16 };

// Returns the coarsest that fits what a trace says: `device` as PyTorch names it; `precision` is what
// torch.get_float32_matmul_precision() returned, empty where nobody recorded it. A CPU rounds operands only where its
// program asks for it; an NVIDIA GPU may round them to TF32 (JAX does so unasked), anything else to bf16, as TPUs do.
Fp32Products fp32_products_of(std::string_view device, std::string_view precision);

struct ThresholdOptions {
  ThresholdMethod method = ThresholdMethod::kVariance;
  Fp32Products fp32_products = Fp32Products::kFull;
  double c_sigma = 2.5;                        // V-ABFT: standard deviations
  std::optional<double> e_max = std::nullopt;  // V-ABFT: the calibrated one; without it `default_relative_error`
  std::optional<double> largest =
      std::nullopt;      // A-ABFT: y, the largest product of two elements; otherwise of the operands
  double roundings = 1;  // of each element to the output's dtype: a product that was scaled is rounded again
};

// The dtypes that decide how a product rounds. Offline, after rounding, `output` is C's dtype. Online, before it, C
// still is the fp32 accumulator of narrower operands.
struct Rounding {
  Dtype operand = Dtype::kFloat32;  // the widest of A and B
  Dtype output = Dtype::kFloat32;
};

// V-ABFT's e_max as the paper has it (section 3.6, table 7): the largest relative difference of the two sums; `length`
// is the larger of the two summation lengths K and N. Right products exceed it (`default_relative_error`).
double largest_relative_error(Platform platform, const Rounding& rounding, std::int64_t length);

// V-ABFT's e_max for products of any platform and any operands, at least table 7's. In fp32 and fp64 it is (16 + n / 2) u.
// A thread that adds n equal products one after the other may round in the same direction each time, by up to u of a
// partial sum that grows evenly: n u / 2 of the whole. Constant operands need a quarter of that on CPUs, and where order
// and signs are random sqrt(n) u would do. 16 u is for short sums, whose largest error calibration finds.
// tools/laboratory/right-products measures it again.
double default_relative_error(const Rounding& rounding, Fp32Products fp32_products, std::int64_t length);

// Half the distance from 1 to the next larger value: the u of error analysis.
double unit_roundoff(Dtype dtype);

// Statistics of one row of A.
struct LeftStatistics {
  double mean = 0, variance = 0;  // the variance bounded by the extrema (V-ABFT, equation 24)
  double magnitude = 0;           // largest
  double norm = 0;                // Euclidean
};
LeftStatistics left_statistics(const LineStatistics& row);

// Statistics of B, or of a block of its columns, gathered from those of its K rows.
struct RightStatistics {
  std::int64_t rows = 0, cols = 0;  // K, N
  double mean = 0;                  // sum over rows of |mean|
  double mean_square = 0;           // sum over rows of mean^2
  double variance = 0;              // sum over rows of the variance's bound
  double largest_absolute = 0;      // the infinity norm: largest sum of magnitudes of a row
  double norm = 0;                  // Frobenius
  double checksum_norm = 0;         // of the vector of row sums, Euclidean
};
RightStatistics right_statistics(std::span<const LineStatistics> rows, std::int64_t cols);

// Returns the largest |E_m| that rounding explains. `left_norm` is the infinity norm of A, which only `kNorm` uses.
double threshold(const ThresholdOptions& options, const Rounding& rounding, const LeftStatistics& left,
                 const RightStatistics& right, double left_norm);

// Returns what rounding of C's own elements explains of |E_m| in V-ABFT, where `norm` is the Euclidean norm of C's row and
// `length` as in `default_relative_error`; of other methods 0. It is the threshold where it is the larger one.
double threshold_of_result(const ThresholdOptions& options, const Rounding& rounding, std::int64_t length, double norm);

// Returns why the method has no threshold for such products of length `k`; empty if it has.
std::string_view not_applicable(const ThresholdOptions& options, const Rounding& rounding, std::int64_t k);

}  // namespace ttrace::abft
