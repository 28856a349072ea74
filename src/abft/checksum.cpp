#include "ttrace/abft/checksum.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "abft/lanes.h"
#include "ttrace/numeric/convert.h"

namespace ttrace::abft {
namespace {

// A tile in fp64 fits into the second-level cache; it is longer where the matrix is contiguous.
constexpr std::int64_t kTileLong = 256, kTileShort = 64;

// Eight rows, or fewer, of a tile. The tile is contiguous along its rows, or along its columns in strips of eight.
struct Stretch {
  std::int64_t row, rows;
  std::int64_t block, start;  // the block of columns, and where in it the stretch begins
  std::int64_t cols;
  const double* values;
  std::int64_t pitch;
  bool by_columns;

  std::span<const double> of_row(std::int64_t r) const { return {values + r * pitch, static_cast<std::size_t>(cols)}; }
  std::array<RowStatistics, kStrip> statistics() const {
    std::array<RowStatistics, kStrip> all;
    if (by_columns) {
      statistics_of_strip(values, pitch, cols, start, all.data());
    } else {
      for (std::int64_t r = 0; r < rows; ++r) all[static_cast<std::size_t>(r)] = statistics_of(of_row(r), start);
    }
    return all;
  }
  std::array<RowSums, kStrip> sums() const {
    std::array<RowSums, kStrip> all;
    if (by_columns) {
      const std::array<RowStatistics, kStrip> statistics_of_rows = statistics();
      for (std::size_t r = 0; r < kStrip; ++r) all[r] = statistics_of_rows[r].sums;
    } else {
      for (std::int64_t r = 0; r < rows; ++r) all[static_cast<std::size_t>(r)] = sums_of(of_row(r), start);
    }
    return all;
  }
  std::array<double, kStrip> dots(std::span<const double> column) const {
    std::array<double, kStrip> all{};
    if (by_columns) {
      dots_of_strip(values, pitch, column, all.data());
    } else {
      for (std::int64_t r = 0; r < rows; ++r) all[static_cast<std::size_t>(r)] = dot(of_row(r), column);
    }
    return all;
  }
};

// Calls `visit(stretch)` for every stretch; those of one row in order of columns, different rows on different threads.
template <class Visit>
void for_each_stretch(const MatrixView& matrix, std::int64_t block_length, Visit visit) {
  const std::int64_t length = block_length > 0 ? block_length : matrix.cols;
  const bool by_columns = matrix.row_stride == 1 && matrix.col_stride != 1;
  const std::int64_t tile_rows = by_columns ? kTileLong : kTileShort, tile_cols = by_columns ? kTileShort : kTileLong;
#pragma omp parallel if (matrix.rows * matrix.cols > kTileLong * kTileShort)
  {
    std::vector<double> tile(static_cast<std::size_t>(kTileLong * kTileShort));
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < matrix.rows; row += tile_rows) {
      const std::int64_t rows = std::min(tile_rows, matrix.rows - row);
      for (std::int64_t col = 0, cols = 0; col < matrix.cols; col += cols) {
        const std::int64_t in_block = col % length;
        cols = std::min({tile_cols, length - in_block, matrix.cols - col});
        if (by_columns) {
          for (std::int64_t c = 0; c < cols; ++c) {
            widen(matrix.at(row, col + c), matrix.dtype, rows, tile.data() + c * tile_rows);
          }
        } else {
          read(matrix, row, rows, col, cols, tile.data());
        }
        for (std::int64_t r = 0; r < rows; r += kStrip) {
          visit(Stretch{row + r, std::min<std::int64_t>(kStrip, rows - r), col / length, in_block, cols,
                        tile.data() + (by_columns ? r : r * cols), by_columns ? tile_rows : cols, by_columns});
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
  for_each_stretch(matrix, block_length, [&](const Stretch& stretch) {
    const std::array<RowSums, kStrip> parts = stretch.sums();
    for (std::int64_t r = 0; r < stretch.rows; ++r) {
      add_sums(sums[static_cast<std::size_t>((stretch.row + r) * blocks + stretch.block)],
               parts[static_cast<std::size_t>(r)]);
    }
  });
  return sums;
}

std::vector<RowStatistics> row_statistics(const MatrixView& matrix, std::int64_t block_length) {
  const std::int64_t blocks = block_count(matrix.cols, block_length);
  std::vector<RowStatistics> statistics(static_cast<std::size_t>(matrix.rows * blocks));
  for_each_stretch(matrix, block_length, [&](const Stretch& stretch) {
    const std::array<RowStatistics, kStrip> parts = stretch.statistics();
    for (std::int64_t r = 0; r < stretch.rows; ++r) {
      add_statistics(statistics[static_cast<std::size_t>((stretch.row + r) * blocks + stretch.block)],
                     parts[static_cast<std::size_t>(r)]);
    }
  });
  return statistics;
}

TimesColumns times(const MatrixView& matrix, std::span<const double> columns, std::int64_t count) {
  TimesColumns result;
  result.products.resize(static_cast<std::size_t>(matrix.rows * count));
  result.rows.resize(static_cast<std::size_t>(matrix.rows));
  for_each_stretch(matrix, 0, [&](const Stretch& stretch) {
    const std::array<RowStatistics, kStrip> parts = stretch.statistics();
    for (std::int64_t r = 0; r < stretch.rows; ++r) {
      add_statistics(result.rows[static_cast<std::size_t>(stretch.row + r)], parts[static_cast<std::size_t>(r)]);
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const std::array<double, kStrip> dots = stretch.dots(columns.subspan(
          static_cast<std::size_t>(c * matrix.cols + stretch.start), static_cast<std::size_t>(stretch.cols)));
      for (std::int64_t r = 0; r < stretch.rows; ++r) {
        result.products[static_cast<std::size_t>((stretch.row + r) * count + c)] += dots[static_cast<std::size_t>(r)];
      }
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
