// Checksums of matrices (Huang and Abraham, 1984; V-ABFT section 2.2). The checksums of a row are its plain sum and the
// sum weighted by position, 1, 2, 3, ... (V-ABFT, equation 1). Of a product C = A B the row sums of C equal A times the
// row sums of B. Everything here goes by rows; columns are the rows of the transposed matrix.
//
// Sums are in fp64, over eight lanes and then over tiles in order, so they depend on the matrix's shape alone: not on
// threads, not on the machine.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "ttrace/abft/matrix_view.h"

namespace ttrace::abft {

// Of the finite elements of a row, or of one block of it. Weights begin anew in each block.
struct RowSums {
  double sum = 0, weighted = 0;
  std::int64_t nonfinite = 0;
};

struct RowStatistics {
  RowSums sums;
  double smallest = std::numeric_limits<double>::infinity(), largest = -std::numeric_limits<double>::infinity();
  double absolute = 0;  // sum of magnitudes
  double square = 0;    // sum of squares
  std::int64_t count = 0;
};
void add(RowStatistics& total, const RowStatistics& part);  // `part` comes after; weighted sums stay apart

// Blocks of `length` columns, the last one shorter. A length of 0 is one block of all columns.
std::int64_t block_count(std::int64_t cols, std::int64_t length);

// Row by row, and block by block within a row.
std::vector<RowSums> row_sums(const MatrixView& matrix, std::int64_t block_length = 0);
std::vector<RowStatistics> row_statistics(const MatrixView& matrix, std::int64_t block_length = 0);

// `matrix` times `count` columns, stored one after the other: rows x count values, row by row. The statistics of the
// matrix's rows come from the same pass. Elements that are not finite count as zero.
struct TimesColumns {
  std::vector<double> products;
  std::vector<RowStatistics> rows;
};
TimesColumns times(const MatrixView& matrix, std::span<const double> columns, std::int64_t count);

// The place of a single error in a row of `length` elements, from the differences D1 and D2 of its plain and weighted
// sums (V-ABFT, equation 9). Nothing if no place fits: then it is not a single error.
std::optional<std::int64_t> locate(double sum_difference, double weighted_difference, std::int64_t length);

// The value at `place` that makes the plain sum of `row` equal `checksum`. It is equation 10, C - D1, written so that
// a huge error does not swallow the other elements first.
double corrected(std::span<const double> row, std::int64_t place, double checksum);

}  // namespace ttrace::abft
