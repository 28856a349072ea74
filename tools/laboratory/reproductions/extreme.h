// Extreme-error-correcting checksums, EEC-ABFT (ATTNChecker, sections 4.2 and 4.3): INF, NaN and near-INF in a vector
// are placed and corrected although they leave nothing of its sums. T is float or double, and so are the sums: a sum of
// near-INF values may overflow, which is one of the method's cases.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "abft/propagation.h"

namespace ttrace::reproductions {

template <class T>
struct DenseMatrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<T> values;  // row-major

  DenseMatrix() = default;
  DenseMatrix(std::int64_t rows_, std::int64_t cols_)
      : rows(rows_), cols(cols_), values(static_cast<std::size_t>(rows_ * cols_)) {}
  T& at(std::int64_t row, std::int64_t col) { return values[static_cast<std::size_t>(row * cols + col)]; }
  const T& at(std::int64_t row, std::int64_t col) const { return values[static_cast<std::size_t>(row * cols + col)]; }
};

template <class T>
const T* row_of(const DenseMatrix<T>& matrix, std::int64_t row) {
  return matrix.values.data() + row * matrix.cols;
}

// A sum in lanes, which the compiler adds to side by side.
constexpr std::size_t kSumLanes = 16;
template <class T>
struct LaneSum {
  std::array<T, kSumLanes> lanes{};

  T total() const { return std::accumulate(lanes.begin(), lanes.end(), T{0}); }
};
// Calls `add(lane, i)` for i from 0 to `count`.
template <class Add>
void for_each_lane(std::size_t count, const Add& add) {
  std::size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) add(lane, i + lane);
  }
  for (std::size_t lane = 0; i < count; ++lane, ++i) add(lane, i);
}

struct ExtremeThresholds {
  double near_infinity = abft::kNearInfinity;
  double correct = 1e5;  // T_correct: a larger difference swallows digits, so the value is summed up anew
};

enum class VectorState {
  kClean,
  kCorrected,
  kChecksumWrong,  // the vector is right, its checksums are not: make them again
  kPropagated,     // more than one extreme error (case 4): the other side's checksums may help
  kUncorrectable,  // wrong, and no place or no value can be told
};

struct VectorRepair {
  VectorState state = VectorState::kClean;
  std::int64_t place = -1;  // of kCorrected
};

// The plain and the weighted sum (weights 1, 2, 3, ...) of each row, or of each column, of a matrix. `allowed` is how
// far a right plain sum may be off by rounding; infinity where the operands themselves are corrupted.
template <class T>
struct Checksums {
  std::vector<T> plain, weighted;
  std::vector<double> allowed;
};
template <class T>
Checksums<T> row_checksums(const DenseMatrix<T>& matrix);  // `allowed` is zero
template <class T>
Checksums<T> column_checksums(const DenseMatrix<T>& matrix);

// One vector and its two checksums (section 4.2, cases 1 to 4). A correction is kept only if the weighted sum then
// agrees, too.
template <class T>
VectorRepair repair(std::span<T> vector, T plain, T weighted, double allowed, const ExtremeThresholds& thresholds = {});

using abft::Pattern;

struct Correction {
  std::int64_t row = 0, col = 0;
  double before = 0, after = 0;
};
struct MatrixRepair {
  Pattern pattern = Pattern::kNone;  // of the corrected elements
  std::vector<Correction> corrected;
  std::int64_t rebuilt = 0;  // checksums made again
  std::int64_t wrong = 0;    // rows or columns left wrong: the matrix must be computed again

  bool ok() const { return wrong == 0; }
};

// Deterministic patterns need one side: column checksums correct 1R, row checksums 1C. With both, columns are tried
// first; a 1C error has corrupted their checksums, so they see nothing or too much, and the rows correct it (section
// 4.3). Corrupted checksums, and what they may be off by, are made again from the corrected matrix, unless some of it
// is left wrong. Either pointer may be null.
template <class T>
MatrixRepair repair(DenseMatrix<T>& matrix, Checksums<T>* columns, Checksums<T>* rows,
                    const ExtremeThresholds& thresholds = {});

}  // namespace ttrace::reproductions
