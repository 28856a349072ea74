// Checksums that pass through products (ATTNChecker, section 4.4), and what they may be off by.
//
// Beside each pair of checksums goes a bound of magnitudes, |A| |B| summed along the same line, computed from what the
// checksums come from. It gives the rounding that a right line may show: Higham's |fl(x y) - x y| <= n u |x| |y|, for
// both of the sums that are compared. Where an operand is corrupted the bound may be infinite; then the other side's
// is not.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "reproductions/extreme.h"

namespace ttrace::reproductions {

template <class T>
using Bias = std::vector<T>;

template <class T>
DenseMatrix<T> transposed(const DenseMatrix<T>& matrix) {
  DenseMatrix<T> result(matrix.cols, matrix.rows);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t col = 0; col < matrix.cols; ++col) result.at(col, row) = matrix.at(row, col);
  }
  return result;
}

template <class T>
DenseMatrix<T> columns(const DenseMatrix<T>& matrix, std::int64_t first, std::int64_t count) {
  DenseMatrix<T> result(matrix.rows, count);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t col = 0; col < count; ++col) result.at(row, col) = matrix.at(row, first + col);
  }
  return result;
}

// Two checksums and a bound of magnitudes for each row or column of a matrix: plain, weighted, bound.
template <class T>
struct Bounded {
  std::vector<T> plain, weighted;
  std::vector<double> bound;
};

template <class T>
Bounded<T> zero_bounded(std::int64_t lines) {
  const auto count = static_cast<std::size_t>(lines);
  return {std::vector<T>(count), std::vector<T>(count), std::vector<double>(count)};
}

template <class T>
Bounded<T> columns_of(const DenseMatrix<T>& matrix) {
  Checksums<T> checksums = column_checksums(matrix);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const T* const values = row_of(matrix, row);
    for (std::size_t col = 0; col < checksums.allowed.size(); ++col) {
      checksums.allowed[col] += std::fabs(static_cast<double>(values[col]));
    }
  }
  return {std::move(checksums.plain), std::move(checksums.weighted), std::move(checksums.allowed)};
}

// Checksums of the columns of A pass through A B: one for each column of B.
template <class T>
Bounded<T> through(const Bounded<T>& of_a, const DenseMatrix<T>& b) {
  Bounded<T> result = zero_bounded<T>(b.cols);
  for (std::size_t i = 0; i < of_a.plain.size(); ++i) {
    const T* const values = row_of(b, static_cast<std::int64_t>(i));
    for (std::size_t col = 0; col < result.plain.size(); ++col) {
      result.plain[col] += of_a.plain[i] * values[col];
      result.weighted[col] += of_a.weighted[i] * values[col];
      result.bound[col] += of_a.bound[i] * std::fabs(static_cast<double>(values[col]));
    }
  }
  return result;
}

// Checksums of the rows of B pass through A B: one for each row of A.
template <class T>
Bounded<T> through(const DenseMatrix<T>& a, const Bounded<T>& of_b) {
  Bounded<T> result = zero_bounded<T>(a.rows);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const T* const values = row_of(a, row);
    LaneSum<T> plain, weighted;
    LaneSum<double> bound;
    for_each_lane(of_b.plain.size(), [&](std::size_t lane, std::size_t i) {
      plain.lanes[lane] += of_b.plain[i] * values[i];
      weighted.lanes[lane] += of_b.weighted[i] * values[i];
      bound.lanes[lane] += of_b.bound[i] * std::fabs(static_cast<double>(values[i]));
    });
    const auto at = static_cast<std::size_t>(row);
    result.plain[at] = plain.total(), result.weighted[at] = weighted.total(), result.bound[at] = bound.total();
  }
  return result;
}

// The checksums of the rows of `count` columns from `first` on.
template <class T>
Bounded<T> rows_of(const DenseMatrix<T>& matrix, std::int64_t first, std::int64_t count) {
  Bounded<T> result = zero_bounded<T>(matrix.rows);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const T* const values = row_of(matrix, row) + first;
    LaneSum<T> plain, weighted;
    LaneSum<double> bound;
    for_each_lane(static_cast<std::size_t>(count), [&](std::size_t lane, std::size_t i) {
      plain.lanes[lane] += values[i];
      weighted.lanes[lane] += static_cast<T>(i + 1) * values[i];
      bound.lanes[lane] += std::fabs(static_cast<double>(values[i]));
    });
    const auto at = static_cast<std::size_t>(row);
    result.plain[at] = plain.total(), result.weighted[at] = weighted.total(), result.bound[at] = bound.total();
  }
  return result;
}

// A bias is added to every one of `rows` rows.
template <class T>
void add_bias(Bounded<T>& columns_of_product, const Bias<T>& bias, std::int64_t rows) {
  const T count = static_cast<T>(rows), weights = static_cast<T>(rows * (rows + 1) / 2);
  for (std::size_t col = 0; col < bias.size(); ++col) {
    columns_of_product.plain[col] += count * bias[col];
    columns_of_product.weighted[col] += weights * bias[col];
    columns_of_product.bound[col] += static_cast<double>(rows) * std::fabs(static_cast<double>(bias[col]));
  }
}

// The columns of one head.
template <class T>
Bounded<T> part(const Bounded<T>& all, std::int64_t first, std::int64_t count) {
  const auto cut = [&](const auto& values) {
    return std::remove_cvref_t<decltype(values)>(values.begin() + first, values.begin() + first + count);
  };
  return {cut(all.plain), cut(all.weighted), cut(all.bound)};
}

// Adds up no more than `additions` rounded terms, on either path.
template <class T>
Checksums<T> checksums_of(const Bounded<T>& bounded, std::int64_t additions) {
  const double factor = 2.0 * static_cast<double>(additions) * (std::numeric_limits<T>::epsilon() / 2.0);
  Checksums<T> checksums{bounded.plain, bounded.weighted, bounded.bound};
  for (double& allowed : checksums.allowed) allowed *= factor;
  return checksums;
}

}  // namespace ttrace::reproductions
