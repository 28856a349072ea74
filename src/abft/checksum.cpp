// A matrix is cut into bands of rows, which different threads read, and a band into tiles that fit in cache. A tile is
// fetched from memory once; its rows and its columns are then summed from cache. The sums of a band's columns are
// carried on from tile to tile, and the bands' sums are added in the order of the bands.
#include "ttrace/abft/checksum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "abft/tile_kernel.h"

namespace ttrace::abft {
namespace {

constexpr std::int64_t kTileRows = 32, kTileCols = 1024;
constexpr std::int64_t kPanelCols = 8 * kTileCols;  // the column sums of a panel, of all bands, stay in cache
constexpr std::int64_t kBandRows = 256;             // a band has at least as many, unless it is the last
constexpr std::int64_t kMostBands = 32;             // more threads than this have nothing to do

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Adds up a line from its parts, in their order.
struct LineAccumulator {
  LineStatistics all;
  double lost = 0;

  // `start` is the number of elements of the line before `part`. `lost` collects rounding errors by Knuth's two-sum.
  void add(const RowSums& part, std::int64_t start) {
    const double next = all.sum + part.sum, added = next - all.sum;
    lost += part.lost + ((all.sum - (next - added)) + (part.sum - added));
    all.sum = next;
    all.weighted += part.weighted + static_cast<double>(start) * part.sum;
    all.smallest = std::min(all.smallest, part.smallest);
    all.largest = std::max(all.largest, part.largest);
    all.absolute += part.absolute;
    all.square += part.square;
  }
};

std::vector<LineStatistics> finish(const std::vector<LineAccumulator>& lines, std::int64_t count) {
  std::vector<LineStatistics> all;
  all.reserve(lines.size());
  for (const LineAccumulator& line : lines) {
    all.push_back(line.all);
    all.back().sum += line.lost;
    all.back().count = count;
  }
  return all;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The sums of one band's rows and columns within one panel.
struct Band {
  std::int64_t first = 0, rows = 0;
  ColumnSums columns;
  ColumnProducts left_times;
  std::vector<LineAccumulator> lines;
  LineSums times_right;
  std::vector<std::int64_t> row_nonfinite, col_nonfinite;  // empty: none

  void begin(const Reading& reading, std::int64_t panel_cols) {
    const std::size_t cols = index(panel_cols), band_rows = index(rows);
    if (reading.depth >= Depth::kSums) {
      for (std::vector<double>* sums : {&columns.sum, &columns.lost, &columns.running}) sums->assign(cols, 0);
      lines.assign(band_rows, {});
    }
    if (reading.depth >= Depth::kExtrema) {
      columns.smallest.assign(cols, std::numeric_limits<double>::infinity());
      columns.largest.assign(cols, -std::numeric_limits<double>::infinity());
    }
    if (reading.depth >= Depth::kNorms) {
      for (std::vector<double>* sums : {&columns.absolute, &columns.square}) sums->assign(cols, 0);
    }
    if (reading.left != nullptr) {
      for (std::vector<double>* sums : {&left_times.plain, &left_times.lost, &left_times.weighted})
        sums->assign(cols, 0);
    }
    if (reading.right != nullptr) times_right.plain.assign(band_rows, 0), times_right.weighted.assign(band_rows, 0);
    row_nonfinite.clear();
    col_nonfinite.clear();
  }

  // Every NaN and Inf shows in the sum of its line.
  bool is_finite() const {
    return all_finite(columns.sum) && all_finite(left_times.plain) && all_finite(times_right.plain);
  }

  RowSums column_sums(std::size_t col) const {
    const auto of = [&](const std::vector<double>& sums, double none) { return sums.empty() ? none : sums[col]; };
    const RowSums none;
    return {.sum = columns.sum[col],
            .lost = columns.lost[col],
            .weighted = static_cast<double>(rows + 1) * columns.sum[col] - columns.running[col],
            .smallest = of(columns.smallest, none.smallest),
            .largest = of(columns.largest, none.largest),
            .absolute = of(columns.absolute, 0),
            .square = of(columns.square, 0)};
  }
};

class Reader {
 public:
  Reader(const MatrixView& matrix, const Reading& reading) : matrix_(matrix), reading_(reading) {
    const std::size_t rows = index(matrix.rows), cols = index(matrix.cols);
    if (wants_sums()) rows_.resize(rows), cols_.resize(cols);
    if (reading.left != nullptr) left_times_ = {std::vector<double>(cols), std::vector<double>(cols)};
    if (reading.right != nullptr) times_right_ = {std::vector<double>(rows), std::vector<double>(rows)};
    const std::int64_t band_rows = std::max(kBandRows, (matrix.rows + kMostBands - 1) / kMostBands);
    for (std::int64_t row = 0; row < matrix.rows; row += band_rows) {
      bands_.emplace_back();
      bands_.back().first = row;
      bands_.back().rows = std::min(band_rows, matrix.rows - row);
    }
  }

  MatrixLines read() {
#pragma omp parallel if (matrix_.rows * matrix_.cols > kBandRows * kTileCols)
    for (std::int64_t panel = 0; panel < matrix_.cols; panel += kPanelCols) {
      const std::int64_t cols = std::min(kPanelCols, matrix_.cols - panel);
#pragma omp for schedule(static)
      for (Band& band : bands_) read_band(band, panel, cols);
#pragma omp for schedule(static)
      for (std::int64_t col = 0; col < cols; ++col) add_columns(panel, col);
    }
    return {finish(rows_, matrix_.cols), finish(cols_, matrix_.rows), std::move(left_times_), std::move(times_right_)};
  }

 private:
  bool wants_sums() const { return reading_.depth != Depth::kNone; }

  void read_band(Band& band, std::int64_t panel, std::int64_t cols) {
    for (const bool mask : {false, true}) {
      band.begin(reading_, cols);
      std::vector<double> values;
      for (std::int64_t row = 0; row < band.rows; row += kTileRows) {
        for (std::int64_t col = 0; col < cols; col += kTileCols) {
          const std::int64_t tile_rows = std::min(kTileRows, band.rows - row);
          const std::int64_t tile_cols = std::min(kTileCols, cols - col);
          Tile tile{matrix_.at(band.first + row, panel + col), matrix_.dtype, matrix_.row_stride, tile_rows, tile_cols};
          if (mask || matrix_.col_stride != 1 || !has_kernel(matrix_.dtype)) {
            tile = widened(band.first + row, tile_rows, panel + col, tile_cols, values);
          }
          if (mask) mask_nonfinite(values, tile_rows, tile_cols, row, col, cols, band);
          sum_tile(tile, band, row, panel, col);
        }
      }
      // Otherwise the band is read again with NaN and Inf masked; a sum that still is not finite overflowed.
      if (band.is_finite()) break;
    }
    add_rows(band);
  }

  Tile widened(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
               std::vector<double>& values) const {
    values.resize(index(rows * cols));
    abft::read(matrix_, row, rows, col, cols, values.data());
    return {reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat64, cols, rows, cols};
  }

  // Sets NaN and Inf to zero, and counts them. `values` are those of the tile at (`row`, `col`) of the band.
  static void mask_nonfinite(std::vector<double>& values, std::int64_t rows, std::int64_t cols, std::int64_t row,
                             std::int64_t col, std::int64_t panel_cols, Band& band) {
    band.row_nonfinite.resize(index(band.rows));
    band.col_nonfinite.resize(index(panel_cols));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        double& value = values[index(r * cols + c)];
        if (std::isfinite(value)) continue;
        value = 0;
        ++band.row_nonfinite[index(row + r)];
        ++band.col_nonfinite[index(col + c)];
      }
    }
  }

  void sum_tile(const Tile& tile, Band& band, std::int64_t row, std::int64_t panel, std::int64_t col) const {
    if (wants_sums()) {
      RowSums rows[kTileRows];
      sum_rows(tile, reading_.depth, rows);
      for (std::int64_t r = 0; r < tile.rows; ++r) band.lines[index(row + r)].add(rows[r], panel + col);
      sum_columns(tile, reading_.depth, band.columns, col);
    }
    if (const LineSums* right = reading_.right; right != nullptr) {
      Pair rows[kTileRows];
      multiply_rows(tile, right->plain.data() + panel + col, right->weighted.data() + panel + col, rows);
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        band.times_right.plain[index(row + r)] += rows[r].plain;
        band.times_right.weighted[index(row + r)] += rows[r].weighted;
      }
    }
    if (const LineSums* left = reading_.left; left != nullptr) {
      multiply_columns(tile, left->plain.data() + band.first + row, left->weighted.data() + band.first + row,
                       band.left_times, col);
    }
  }

  void add_rows(const Band& band) {
    for (std::size_t r = 0; r < index(band.rows); ++r) {
      const std::size_t row = index(band.first) + r;
      if (wants_sums()) {
        const LineStatistics& all = band.lines[r].all;
        rows_[row].add({all.sum, band.lines[r].lost, all.weighted, all.smallest, all.largest, all.absolute, all.square},
                       0);
        if (!band.row_nonfinite.empty()) rows_[row].all.nonfinite += band.row_nonfinite[r];
      }
      if (reading_.right == nullptr) continue;
      times_right_.plain[row] += band.times_right.plain[r];
      times_right_.weighted[row] += band.times_right.weighted[r];
    }
  }

  void add_columns(std::int64_t panel, std::int64_t column) {
    const std::size_t c = index(column), col = index(panel + column);
    for (const Band& band : bands_) {
      if (wants_sums()) {
        cols_[col].add(band.column_sums(c), band.first);
        if (!band.col_nonfinite.empty()) cols_[col].all.nonfinite += band.col_nonfinite[c];
      }
      if (reading_.left == nullptr) continue;
      left_times_.plain[col] += band.left_times.plain[c] + band.left_times.lost[c];
      left_times_.weighted[col] += band.left_times.weighted[c];
    }
  }

  const MatrixView& matrix_;
  const Reading& reading_;
  std::vector<Band> bands_;
  std::vector<LineAccumulator> rows_, cols_;
  LineSums left_times_, times_right_;
};

}  // namespace

void add(LineStatistics& total, const LineStatistics& part) {
  total.sum += part.sum;
  total.smallest = std::min(total.smallest, part.smallest);
  total.largest = std::max(total.largest, part.largest);
  total.absolute += part.absolute;
  total.square += part.square;
  total.count += part.count;
  total.nonfinite += part.nonfinite;
}

LineSums sums_of(std::span<const LineStatistics> lines) {
  LineSums sums;
  for (const LineStatistics& line : lines) {
    sums.plain.push_back(line.sum);
    sums.weighted.push_back(line.weighted);
  }
  return sums;
}

MatrixLines read_lines(const MatrixView& matrix, const Reading& reading) {
  if (matrix.row_stride == 1 && matrix.col_stride != 1) {  // columns are contiguous: read the transposed matrix by rows
    const MatrixView turned = transposed(matrix);
    MatrixLines lines = Reader(turned, {reading.depth, reading.right, reading.left}).read();
    return {std::move(lines.cols), std::move(lines.rows), std::move(lines.times_right), std::move(lines.left_times)};
  }
  return Reader(matrix, reading).read();
}

std::optional<std::int64_t> locate(double sum_difference, double weighted_difference, std::int64_t length) {
  const double position = std::nearbyint(weighted_difference / sum_difference);
  if (!(position >= 1 && position <= static_cast<double>(length))) return std::nullopt;  // NaN too
  return static_cast<std::int64_t>(position) - 1;
}

}  // namespace ttrace::abft
