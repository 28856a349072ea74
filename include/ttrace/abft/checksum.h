// LineSums of matrices (Huang and Abraham, 1984; V-ABFT section 2.2). The checksums of a line, a row or a column, are
// its plain sum and the sum weighted by position, 1, 2, 3, ... (V-ABFT, equation 1). Of a product C = A B the row sums
// of C equal A times the row sums of B, and its column sums the column sums of A times B.
//
// A matrix is read once for the sums of its rows and of its columns, for the statistics that thresholds need, and for
// its products with checksums of the other operand. All is in fp64, of widened elements; the plain sum of n elements is
// off by at most 2^-53 of the sum of their magnitudes where they are fp64 (compensated sums: to first order, whatever
// n), and by n times that where they are narrower, whose own rounding is 2^29 and more times coarser.
// The order of summation depends on the matrix's shape and dtype alone: not on threads, not on the machine.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "ttrace/abft/matrix_view.h"

namespace ttrace::abft {

// What is wanted of a line: the sums; its extrema, too; its norms, too.
enum class Depth { kNone, kSums, kExtrema, kNorms };

// Of the finite elements of a row or a column. What is deeper than was asked for is as here.
struct LineStatistics {
  double sum = 0, weighted = 0;
  double smallest = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  double absolute = 0;  // sum of magnitudes
  double square = 0;    // sum of squares
  std::int64_t count = 0, nonfinite = 0;
};
void add(LineStatistics& total, const LineStatistics& part);  // `part` comes after; weighted sums stay apart

// Two numbers for each line of a matrix.
struct LineSums {
  std::vector<double> plain, weighted;
};
LineSums sums_of(std::span<const LineStatistics> lines);

// What one reading of a matrix is to give. `left` has a number for each row, and is multiplied with the matrix from the
// left; `right` has one for each column. Either may be null.
struct Reading {
  Depth depth = Depth::kNone;
  const LineSums* left = nullptr;
  const LineSums* right = nullptr;
};
struct MatrixLines {
  std::vector<LineStatistics> rows, cols;
  LineSums left_times;   // one a column
  LineSums times_right;  // one a row
};
// Elements that are not finite count as zero.
MatrixLines read_lines(const MatrixView& matrix, const Reading& reading);

// The place of a single error in a row of `length` elements, from the differences D1 and D2 of its plain and weighted
// sums (V-ABFT, equation 9). Nothing if no place fits: then it is not a single error.
std::optional<std::int64_t> locate(double sum_difference, double weighted_difference, std::int64_t length);

}  // namespace ttrace::abft
