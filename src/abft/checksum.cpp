#include "ttrace/abft/checksum.h"

#include <algorithm>
#include <cmath>

#include "abft/lanes.h"

namespace ttrace::abft {
namespace {

// A tile in fp64 fits into the second-level cache.
constexpr std::int64_t kTileRows = 64, kTileCols = 256;

// Calls `visit(row, block, start in block, values, count)` for every stretch of every row; of one row in order of
// columns, different rows on different threads.
template <class Visit>
void for_each_stretch(const MatrixView& matrix, std::int64_t block_length, Visit visit) {
  const std::int64_t length = block_length > 0 ? block_length : matrix.cols;
#pragma omp parallel if (matrix.rows * matrix.cols > kTileRows * kTileCols)
  {
    std::vector<double> tile(static_cast<std::size_t>(kTileRows * kTileCols));
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < matrix.rows; row += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, matrix.rows - row);
      for (std::int64_t col = 0, cols = 0; col < matrix.cols; col += cols) {
        const std::int64_t in_block = col % length;
        cols = std::min({kTileCols, length - in_block, matrix.cols - col});
        read(matrix, row, rows, col, cols, tile.data());
        for (std::int64_t r = 0; r < rows; ++r) {
          visit(row + r, col / length, in_block, std::span<const double>(tile).subspan(r * cols, cols));
        }
      }
    }
  }
}

void add_sums(RowSums& total, const RowSums& part) {
  total.sum += part.sum;
  total.weighted += part.weighted;
  total.nonfinite += part.nonfinite;
}

void add_statistics(RowStatistics& total, const RowStatistics& part) {
  add_sums(total.sums, part.sums);
  total.smallest = std::min(total.smallest, part.smallest);
  total.largest = std::max(total.largest, part.largest);
  total.absolute += part.absolute;
  total.square += part.square;
  total.count += part.count;
}

}  // namespace

void add(RowStatistics& total, const RowStatistics& part) {
  const double weighted = total.sums.weighted;
  add_statistics(total, part);
  total.sums.weighted = weighted;
}

std::int64_t block_count(std::int64_t cols, std::int64_t length) {
  return length <= 0 || cols == 0 ? 1 : (cols + length - 1) / length;
}

std::vector<RowSums> row_sums(const MatrixView& matrix, std::int64_t block_length) {
  const std::int64_t blocks = block_count(matrix.cols, block_length);
  std::vector<RowSums> sums(static_cast<std::size_t>(matrix.rows * blocks));
  for_each_stretch(matrix, block_length,
                   [&](std::int64_t row, std::int64_t block, std::int64_t start, std::span<const double> values) {
                     add_sums(sums[static_cast<std::size_t>(row * blocks + block)], sums_of(values, start));
                   });
  return sums;
}

std::vector<RowStatistics> row_statistics(const MatrixView& matrix, std::int64_t block_length) {
  const std::int64_t blocks = block_count(matrix.cols, block_length);
  std::vector<RowStatistics> statistics(static_cast<std::size_t>(matrix.rows * blocks));
  for_each_stretch(matrix, block_length,
                   [&](std::int64_t row, std::int64_t block, std::int64_t start, std::span<const double> values) {
                     add_statistics(statistics[static_cast<std::size_t>(row * blocks + block)],
                                    statistics_of(values, start));
                   });
  return statistics;
}

TimesColumns times(const MatrixView& matrix, std::span<const double> columns, std::int64_t count) {
  TimesColumns result;
  result.products.resize(static_cast<std::size_t>(matrix.rows * count));
  result.rows.resize(static_cast<std::size_t>(matrix.rows));
  for_each_stretch(matrix, 0, [&](std::int64_t row, std::int64_t, std::int64_t start, std::span<const double> values) {
    RowStatistics part = statistics_of(values, start);
    add_statistics(result.rows[static_cast<std::size_t>(row)], part);
    for (std::int64_t c = 0; c < count; ++c) {
      const auto column = columns.subspan(static_cast<std::size_t>(c * matrix.cols + start), values.size());
      result.products[static_cast<std::size_t>(row * count + c)] += dot(values, column);
    }
  });
  return result;
}

std::optional<std::int64_t> locate(double sum_difference, double weighted_difference, std::int64_t length) {
  const double position = std::nearbyint(weighted_difference / sum_difference);
  if (!(position >= 1 && position <= static_cast<double>(length))) return std::nullopt;  // NaN too
  return static_cast<std::int64_t>(position) - 1;
}

double corrected(std::span<const double> row, std::int64_t place, double checksum) {
  const auto at = static_cast<std::size_t>(place);
  return checksum - sums_of(row.first(at), 0).sum - sums_of(row.subspan(at + 1), 0).sum;
}

}  // namespace ttrace::abft
