// Checksums of matrices (Huang and Abraham, 1984; V-ABFT section 2.2). A line is a row or a column; its checksums are
// its plain sum and its sum weighted by position, 1, 2, 3, ... (V-ABFT, equation 1). For a product C = A B, the row
// sums of C equal A times the row sums of B, and the column sums of C equal the column sums of A, times B.
//
// One reading of a matrix gives the sums of its rows and of its columns, the statistics that thresholds need, and its
// products with checksums of the other operand. Elements are widened to fp64 and summed in it. The plain sum of n fp64
// elements is compensated: it is off by at most 2^-53 of the sum of their magnitudes, to first order, whatever n. The
// sum of narrower elements is off by n times that, which is little: their own rounding is at least 2^29 times coarser.
// Where C is rounded to 16 bits, parts of the sums may be in fp32 (`Reading::in_fp32`). The order of summation depends
// on the matrix's shape and dtype and on the Reading alone, not on threads and not on the machine.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "abft/matrix_view.h"

namespace ttrace::abft {

// Says how much to compute of each line. Every step includes those before it: sums, then extrema, then norms.
enum class Depth { kNone, kSums, kExtrema, kNorms };

// Sums and statistics of a row's or a column's finite elements. Members beyond the Depth that was asked for keep these
// initial values.
struct LineStatistics {
  double sum = 0, weighted = 0;
  double smallest = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  double absolute = 0;  // sum of magnitudes
  double square = 0;    // sum of squares
  std::int64_t count = 0, nonfinite = 0;
};
// Adds to `total` the statistics of a part that follows it in the line. Weighted sums are left as they are, since the
// position of the part is not known here.
void add(LineStatistics& total, const LineStatistics& part);

// The two checksums of each line of a matrix.
struct LineSums {
  std::vector<double> plain, weighted;
};
LineSums sums_of(std::span<const LineStatistics> lines);

// Asks for what one reading of a matrix gives: sums to a Depth; if `left` is not null, the product of `left` (two
// numbers for each row) and the matrix; if `right` is not null, that of the matrix and `right` (two numbers for each
// column). Unless `weighted`, all weighted sums are zero: only who looks for the place of an error needs them. With
// `in_fp32`, sums of 16-bit elements that are neither weighted nor norms may be off by 2^-17 of the sum of magnitudes;
// they take two thirds of the time.
struct Reading {
  Depth depth = Depth::kNone;
  bool weighted = false;
  bool in_fp32 = false;
  const LineSums* left = nullptr;
  const LineSums* right = nullptr;
};
struct MatrixLines {
  std::vector<LineStatistics> rows, cols;
  LineSums left_times;   // `left` times the matrix: one of each for each column
  LineSums times_right;  // the matrix times `right`: one of each for each row
};
// Reads a matrix. Elements that are not finite count as zero.
MatrixLines read_lines(const MatrixView& matrix, const Reading& reading);

// Reads one matrix after the other, in the same memory: fresh memory costs as much as reading what fills it.
class LineReader {
 public:
  LineReader();
  ~LineReader();
  // Reads as `read_lines` does. The result is valid until the next reading.
  const MatrixLines& read(const MatrixView& matrix, const Reading& reading);

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

// Returns the index of a single error in a line of `length` elements, from the differences D1 and D2 of its plain and
// weighted sums (V-ABFT, equation 9). Nothing if no index fits: then it is not a single error.
std::optional<std::int64_t> locate(double sum_difference, double weighted_difference, std::int64_t length);

}  // namespace ttrace::abft
