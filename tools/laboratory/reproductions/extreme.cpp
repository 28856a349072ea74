#include "reproductions/extreme.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "abft/checksum.h"

namespace ttrace::reproductions {
namespace {

template <class T>
struct Sums {
  T plain = 0, weighted = 0;
};

template <class T>
Sums<T> sums_of(std::span<const T> vector) {
  Sums<T> sums;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    sums.plain += vector[i];
    sums.weighted += static_cast<T>(i + 1) * vector[i];
  }
  return sums;
}

// The sum of all others, taken from the checksum.
template <class T>
T value_by_checksum(std::span<const T> vector, std::int64_t place, T plain) {
  T others = 0;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    if (static_cast<std::int64_t>(i) != place) others += vector[i];
  }
  return plain - others;
}

// NaN above infinity, infinity above every number.
template <class T>
double size_of_error(T value) {
  return std::isnan(value) ? HUGE_VAL : std::fabs(static_cast<double>(value));
}

template <class T>
struct VectorExtremes {
  std::int64_t count = 0, largest = -1;  // how many, and where the largest is: NaN before INF before near-INF
};

// All types of error are counted whatever the difference is: one type turns into another on its way through a sum.
template <class T>
VectorExtremes<T> extremes_of(std::span<const T> vector, double near_infinity) {
  VectorExtremes<T> extremes;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    if (std::isfinite(vector[i]) && std::fabs(static_cast<double>(vector[i])) <= near_infinity) continue;
    ++extremes.count;
    const auto place = static_cast<std::int64_t>(i);
    const T largest = extremes.largest < 0 ? T{0} : vector[static_cast<std::size_t>(extremes.largest)];
    if (extremes.largest < 0 || (std::isnan(vector[i]) && !std::isnan(largest)) ||
        size_of_error(vector[i]) > size_of_error(largest)) {
      extremes.largest = place;
    }
  }
  return extremes;
}

bool within(double difference, double allowed) { return std::isfinite(difference) && std::fabs(difference) <= allowed; }

// The two differences of a vector to its checksums, in the checksums' own precision.
template <class T>
struct Differences {
  T plain, weighted;

  Differences(T plain_difference, T weighted_difference) : plain(plain_difference), weighted(weighted_difference) {}
  Differences(std::span<const T> vector, T plain_checksum, T weighted_checksum) {
    const Sums<T> sums = sums_of(vector);
    plain = plain_checksum - sums.plain;
    weighted = weighted_checksum - sums.weighted;
  }
  bool agree(double allowed, std::size_t length) const {
    return within(plain, allowed) && within(weighted, allowed * static_cast<double>(length));
  }
};

// Returns where the error is: among extremes the only one, otherwise by the ratio of the differences.
template <class T>
std::int64_t place_of(const Differences<T>& difference, const VectorExtremes<T>& extremes, std::size_t length) {
  if (extremes.count > 0) return extremes.largest;
  return abft::locate(difference.plain, difference.weighted, static_cast<std::int64_t>(length)).value_or(-1);
}

}  // namespace

template <class T>
VectorRepair repair(std::span<T> vector, T plain, T weighted, double allowed, const ExtremeThresholds& thresholds) {
  const std::span<const T> values = vector;
  const Differences<T> difference(values, plain, weighted);
  const VectorExtremes<T> extremes = extremes_of(values, thresholds.near_infinity);
  if (within(difference.plain, allowed)) {
    const bool weighted_agrees = within(difference.weighted, allowed * static_cast<double>(vector.size()));
    return {weighted_agrees || extremes.count > 0 ? VectorState::kClean : VectorState::kChecksumWrong};
  }
  if (extremes.count > 1) return {VectorState::kPropagated};  // case 4
  if (!std::isfinite(plain)) {
    return {extremes.count == 0 ? VectorState::kChecksumWrong : VectorState::kUncorrectable};
  }
  const std::int64_t place = place_of(difference, extremes, vector.size());
  // No extreme, and no place that fits: one of the two checksums is off, or several moderate errors.
  if (place < 0) {
    const bool only_plain = within(difference.weighted, allowed * static_cast<double>(vector.size()));
    return {only_plain ? VectorState::kChecksumWrong : VectorState::kUncorrectable};
  }
  T& value = vector[static_cast<std::size_t>(place)];
  const T before = value;
  const bool add = extremes.count == 0 && std::fabs(difference.plain) < thresholds.correct;  // case 1
  const auto agrees = [&] { return Differences<T>(values, plain, weighted).agree(allowed, vector.size()); };
  if (add) value += difference.plain;
  if (!add || !agrees()) value = value_by_checksum(values, place, plain);  // cases 2 and 3, and case 1 of near-INF
  if (agrees()) return {VectorState::kCorrected, place};
  value = before;
  return {VectorState::kUncorrectable};
}

template <class T>
Checksums<T> row_checksums(const DenseMatrix<T>& matrix) {
  Checksums<T> checksums;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const T* const values = row_of(matrix, row);
    LaneSum<T> plain, weighted;
    for_each_lane(static_cast<std::size_t>(matrix.cols), [&](std::size_t lane, std::size_t i) {
      plain.lanes[lane] += values[i];
      weighted.lanes[lane] += static_cast<T>(i + 1) * values[i];
    });
    checksums.plain.push_back(plain.total());
    checksums.weighted.push_back(weighted.total());
  }
  checksums.allowed.resize(checksums.plain.size());
  return checksums;
}

template <class T>
Checksums<T> column_checksums(const DenseMatrix<T>& matrix) {
  Checksums<T> checksums;
  checksums.plain.resize(static_cast<std::size_t>(matrix.cols));
  checksums.weighted.resize(checksums.plain.size());
  checksums.allowed.resize(checksums.plain.size());
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const T* const values = row_of(matrix, row);
    const T weight = static_cast<T>(row + 1);
    for (std::size_t col = 0; col < checksums.plain.size(); ++col) {
      checksums.plain[col] += values[col];
      checksums.weighted[col] += weight * values[col];
    }
  }
  return checksums;
}

namespace {

// One side of a matrix: its rows or its columns.
template <class T>
class Lines {
 public:
  Lines(DenseMatrix<T>& matrix, bool by_rows) : matrix_(matrix), by_rows_(by_rows) {}

  T& at(std::int64_t line, std::int64_t place) { return by_rows_ ? matrix_.at(line, place) : matrix_.at(place, line); }

  std::vector<T> copy(std::int64_t line) {
    std::vector<T> vector(static_cast<std::size_t>(by_rows_ ? matrix_.cols : matrix_.rows));
    for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = at(line, static_cast<std::int64_t>(i));
    return vector;
  }

  // Corrects the line, if it can.
  VectorState correct(std::int64_t line, const Checksums<T>& checksums, const ExtremeThresholds& thresholds,
                      std::vector<Correction>& corrections) {
    const auto index = static_cast<std::size_t>(line);
    std::vector<T> vector = copy(line);
    const VectorRepair result = repair(std::span<T>(vector), checksums.plain[index], checksums.weighted[index],
                                       checksums.allowed[index], thresholds);
    if (result.state == VectorState::kCorrected) {
      T& value = at(line, result.place);
      const T after = vector[static_cast<std::size_t>(result.place)];
      corrections.push_back({by_rows_ ? line : result.place, by_rows_ ? result.place : line, static_cast<double>(value),
                             static_cast<double>(after)});
      value = after;
    }
    return result.state;
  }

  void rebuild(std::int64_t line, Checksums<T>& checksums) {
    const std::vector<T> vector = copy(line);
    const Sums<T> sums = sums_of(std::span<const T>(vector));
    const auto at_line = static_cast<std::size_t>(line);
    checksums.plain[at_line] = sums.plain;
    checksums.weighted[at_line] = sums.weighted;
    double magnitude = 0;
    for (const T value : vector) magnitude += std::fabs(static_cast<double>(value));
    checksums.allowed[at_line] = static_cast<double>(vector.size()) * std::numeric_limits<T>::epsilon() * magnitude;
  }

 private:
  DenseMatrix<T>& matrix_;
  bool by_rows_;
};

// The lines whose two sums are not what their checksums say. Most are right: to look at all sums costs one reading.
template <class T>
std::vector<std::int64_t> suspicious_lines(const DenseMatrix<T>& matrix, bool by_rows, const Checksums<T>& checksums) {
  const auto length = static_cast<std::size_t>(by_rows ? matrix.cols : matrix.rows);
  const Checksums<T> sums = by_rows ? row_checksums(matrix) : column_checksums(matrix);
  std::vector<std::int64_t> lines;
  for (std::size_t line = 0; line < sums.plain.size(); ++line) {
    const Differences<T> difference{checksums.plain[line] - sums.plain[line],
                                    checksums.weighted[line] - sums.weighted[line]};
    if (!difference.agree(checksums.allowed[line], length)) lines.push_back(static_cast<std::int64_t>(line));
  }
  return lines;
}

Pattern pattern_of(const std::vector<Correction>& corrections) {
  std::set<std::int64_t> rows, cols;
  for (const Correction& correction : corrections) {
    rows.insert(correction.row);
    cols.insert(correction.col);
  }
  if (corrections.empty()) return Pattern::kNone;
  if (rows.size() == 1) return cols.size() == 1 ? Pattern::k0D : Pattern::k1R;
  return cols.size() == 1 ? Pattern::k1C : Pattern::k2D;
}

bool is_wrong(VectorState state) { return state == VectorState::kPropagated || state == VectorState::kUncorrectable; }

}  // namespace

template <class T>
MatrixRepair repair(DenseMatrix<T>& matrix, Checksums<T>* columns, Checksums<T>* rows,
                    const ExtremeThresholds& thresholds) {
  MatrixRepair result;
  std::set<std::int64_t> columns_to_rebuild, rows_to_rebuild;
  const auto pass = [&](bool by_rows, const Checksums<T>& checksums, const std::set<std::int64_t>& skipped,
                        std::set<std::int64_t>& to_rebuild) {
    std::set<std::int64_t> wrong;
    Lines<T> lines(matrix, by_rows);
    for (const std::int64_t line : suspicious_lines(matrix, by_rows, checksums)) {
      if (skipped.contains(line)) continue;
      const VectorState state = lines.correct(line, checksums, thresholds, result.corrected);
      if (is_wrong(state)) wrong.insert(line);
      if (is_wrong(state) || state == VectorState::kChecksumWrong) to_rebuild.insert(line);
    }
    return wrong;
  };
  std::set<std::int64_t> wrong_columns;
  if (columns) wrong_columns = pass(false, *columns, {}, columns_to_rebuild);
  result.wrong = std::ssize(wrong_columns);
  // A row that its columns have corrected is right now; what made it wrong has made its checksums wrong, too.
  for (const Correction& correction : result.corrected) rows_to_rebuild.insert(correction.row);
  if (rows) {
    const std::size_t by_columns = result.corrected.size();
    const std::set<std::int64_t> corrected = rows_to_rebuild;
    result.wrong = std::ssize(pass(true, *rows, corrected, rows_to_rebuild));
    for (std::size_t i = by_columns; i < result.corrected.size(); ++i) {
      columns_to_rebuild.insert(result.corrected[i].col);
      wrong_columns.erase(result.corrected[i].col);
    }
    result.wrong += std::ssize(wrong_columns);  // seen by their own sums, not by those of any row
  }
  result.pattern = pattern_of(result.corrected);
  if (!result.ok()) return result;  // checksums of a wrong matrix would bless it
  if (columns) {
    for (const std::int64_t col : columns_to_rebuild) Lines<T>(matrix, false).rebuild(col, *columns);
    result.rebuilt += std::ssize(columns_to_rebuild);
  }
  if (rows) {
    for (const std::int64_t row : rows_to_rebuild) Lines<T>(matrix, true).rebuild(row, *rows);
    result.rebuilt += std::ssize(rows_to_rebuild);
  }
  return result;
}

#define TTRACE_INSTANTIATE(T)                                                         \
  template Checksums<T> row_checksums(const DenseMatrix<T>&);                         \
  template Checksums<T> column_checksums(const DenseMatrix<T>&);                      \
  template VectorRepair repair(std::span<T>, T, T, double, const ExtremeThresholds&); \
  template MatrixRepair repair(DenseMatrix<T>&, Checksums<T>*, Checksums<T>*, const ExtremeThresholds&);
TTRACE_INSTANTIATE(float)
TTRACE_INSTANTIATE(double)
#undef TTRACE_INSTANTIATE

}  // namespace ttrace::reproductions
