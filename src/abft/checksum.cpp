// A matrix is cut into bands of rows, a band into blocks, which different threads read, and a block into tiles of a few
// rows. A tile is read once, for the sums of its rows and of its columns. The sums of a block's columns are carried on
// from tile to tile; the blocks' sums are added in the order of the bands and, within a band, of the columns.
#include "abft/checksum.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "abft/line_totals.h"
#include "abft/tile_kernel.h"

namespace ttrace::abft {
namespace {

constexpr std::int64_t kBlockCols = kTileCols;
constexpr std::int64_t kPanelCols = 8 * kBlockCols;  // the column sums of a panel, of all bands, stay in cache
// A band has an eighth of the rows, so that threads have enough bands to share, but no fewer than kBandRows and no more
// than kBestRows: larger bands leave fewer sums of columns to add. The last may be smaller. Of a matrix that would have
// more than kMostBands all are larger.
constexpr std::int64_t kFewBands = 8, kBandRows = 256, kBestRows = 512;
constexpr std::int64_t kAddedCols = 256;  // of a block, whose sums one thread adds
constexpr std::int64_t kMostBands = 32;   // more threads than this have nothing to do

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The sums of the rows and columns of a block: those of a band within some of its columns.
struct Block {
  std::int64_t first_row = 0, rows = 0, first_col = 0, cols = 0;
  PartialSums lines, columns;  // of its rows and columns
  ColumnProducts left_times;
  std::vector<Pair> times_right;
  std::vector<std::int64_t> row_nonfinite, col_nonfinite;  // empty: none

  void begin(const Reading& reading) {
    const std::size_t padded = index((cols + kStepCols - 1) / kStepCols * kStepCols);
    abft::begin(lines, index(rows), reading);
    abft::begin(columns, padded, reading);
    const auto begin_if = [padded](bool wanted, std::vector<double>& sums) { sums.assign(wanted ? padded : 0, 0); };
    begin_if(reading.left != nullptr, left_times.plain);
    begin_if(reading.left != nullptr, left_times.lost);
    begin_if(reading.left != nullptr && reading.weighted, left_times.weighted);
    times_right.assign(index(reading.right == nullptr ? 0 : rows), {});
    row_nonfinite.clear();
    col_nonfinite.clear();
  }

  // Every NaN and Inf shows in the sum of its line.
  bool is_finite() const {
    return all_finite(columns.sum) && all_finite(left_times.plain) &&
           std::all_of(times_right.begin(), times_right.end(),
                       [](const Pair& pair) { return std::isfinite(pair.plain); });
  }

  // Weights the columns' elements by 1 to n.
  void finish() {
    const double count = static_cast<double>(rows + 1);
    for (std::size_t i = 0; i < columns.weighted.size(); ++i) {
      columns.weighted[i] = count * columns.sum[i] - columns.running[i];
    }
  }
};

// The columns that are read before their sums are added.
struct Panel {
  std::int64_t first_col = 0, cols = 0;
  std::int64_t blocks() const { return (cols + kBlockCols - 1) / kBlockCols; }  // of each band
};

}  // namespace

class LineReader::Reader {
 public:
  MatrixLines result;

  void read(const MatrixView& matrix, const Reading& reading) {
    matrix_ = matrix;
    reading_ = reading;
    band_rows_ = std::max(std::clamp(matrix.rows / kFewBands, kBandRows, kBestRows),
                          (matrix.rows + kMostBands - 1) / kMostBands);
    bands_ = (matrix.rows + band_rows_ - 1) / band_rows_;
    rows_.begin(matrix.rows, reading);
    cols_.begin(matrix.cols, reading);
    result.rows.resize(index(wants_sums() ? matrix.rows : 0));
    result.cols.resize(index(wants_sums() ? matrix.cols : 0));
    for (std::vector<double>* sums : {&result.left_times.plain, &result.left_times.weighted}) {
      sums->assign(index(reading.left == nullptr ? 0 : matrix.cols), 0);
    }
    for (std::vector<double>* sums : {&result.times_right.plain, &result.times_right.weighted}) {
      sums->assign(index(reading.right == nullptr ? 0 : matrix.rows), 0);
    }
    if (matrix.cols == 0) rows_.finish(0, result.rows.size(), 0, result.rows);
    blocks_.resize(index(bands_ * Panel{0, std::min(kPanelCols, matrix.cols)}.blocks()));
#pragma omp parallel if (matrix_.rows * matrix_.cols > kBandRows * kBlockCols)
    for (std::int64_t col = 0; col < matrix_.cols; col += kPanelCols) {
      const Panel panel = {col, std::min(kPanelCols, matrix_.cols - col)};
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < bands_ * panel.blocks(); ++i) read_block(panel, i);
#pragma omp for schedule(static) nowait
      for (std::int64_t band = 0; band < bands_; ++band) add_rows(panel, band);
#pragma omp for schedule(static)
      for (std::int64_t first = 0; first < panel.cols; first += kAddedCols) add_columns(panel, first);
    }
  }

 private:
  bool wants_sums() const { return reading_.depth != Depth::kNone; }

  Factors factors_at(const LineSums* sums, std::int64_t first) const {
    if (sums == nullptr) return {};
    return {sums->plain.data() + first, reading_.weighted ? sums->weighted.data() + first : nullptr};
  }

  // Reads the panel's block number `i`, in order of the bands.
  void read_block(const Panel& panel, std::int64_t i) {
    Block& block = blocks_[index(i)];
    block.first_row = i / panel.blocks() * band_rows_;
    block.rows = std::min(band_rows_, matrix_.rows - block.first_row);
    const std::int64_t first_col = i % panel.blocks() * kBlockCols;
    block.first_col = panel.first_col + first_col;
    block.cols = std::min(kBlockCols, panel.cols - first_col);
    for (const bool mask : {false, true}) {
      block.begin(reading_);
      std::vector<double> values;
      const std::int64_t most = tile_rows(matrix_.dtype);
      for (std::int64_t row = 0; row < block.rows; row += most) {
        const std::int64_t rows = std::min(most, block.rows - row);
        Tile tile{matrix_.at(block.first_row + row, block.first_col), matrix_.dtype, matrix_.row_stride, rows,
                  block.cols};
        if (mask || matrix_.col_stride != 1 || !has_kernel(matrix_.dtype)) {
          tile = widened(block.first_row + row, rows, block.first_col, block.cols, values);
        }
        if (mask) mask_nonfinite(values, rows, row, block);
        sum_tile(tile, block, row);
      }
      // Otherwise the block is read again with NaN and Inf masked; a sum that still is not finite overflowed.
      if (block.is_finite()) break;
    }
    block.finish();
  }

  Tile widened(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols,
               std::vector<double>& values) const {
    values.resize(index(rows * cols));
    abft::read(matrix_, row, rows, col, cols, values.data());
    return {reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat64, cols, rows, cols};
  }

  // Sets NaN and Inf to zero, and counts them. `values` are those of `rows` rows of the block from `row` on.
  static void mask_nonfinite(std::vector<double>& values, std::int64_t rows, std::int64_t row, Block& block) {
    block.row_nonfinite.resize(index(block.rows));
    block.col_nonfinite.resize(index(block.cols));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < block.cols; ++c) {
        double& value = values[index(r * block.cols + c)];
        if (std::isfinite(value)) continue;
        value = 0;
        ++block.row_nonfinite[index(row + r)];
        ++block.col_nonfinite[index(c)];
      }
    }
  }

  void sum_tile(const Tile& tile, Block& block, std::int64_t row) const {
    const TileReading reading = {reading_.depth, reading_.weighted, reading_.in_fp32,
                                 factors_at(reading_.left, block.first_row + row)};
    if (wants_sums() || reading_.left != nullptr) {
      read_tile(tile, reading, row, block.lines, block.columns, block.left_times);
    }
    if (reading_.right != nullptr) {
      multiply_rows(tile, factors_at(reading_.right, block.first_col), reading_.in_fp32,
                    &block.times_right[index(row)]);
    }
  }

  // Adds the rows of a band.
  void add_rows(const Panel& panel, std::int64_t band) {
    const std::int64_t first_row = band * band_rows_, rows = std::min(band_rows_, matrix_.rows - first_row);
    const std::size_t first = index(first_row);
    for (std::int64_t i = 0; i < panel.blocks(); ++i) {
      const Block& block = blocks_[index(band * panel.blocks() + i)];
      rows_.add(first, index(rows), block.lines, 0, block.first_col);
      rows_.add_nonfinite(first, index(rows), block.row_nonfinite, 0);
      for (std::size_t r = 0; r < block.times_right.size(); ++r) {
        result.times_right.plain[first + r] += block.times_right[r].plain;
        result.times_right.weighted[first + r] += block.times_right[r].weighted;
      }
    }
    if (panel.first_col + panel.cols == matrix_.cols) rows_.finish(first, index(rows), matrix_.cols, result.rows);
  }

  // Adds the columns from `first` of the panel on, kAddedCols of them, in the order of the bands.
  void add_columns(const Panel& panel, std::int64_t first) {
    const std::size_t count = index(std::min(kAddedCols, panel.cols - first));
    const std::size_t in_block = index(first % kBlockCols), col = index(panel.first_col + first);
    for (std::int64_t band = 0; band < bands_; ++band) {
      const Block& block = blocks_[index(band * panel.blocks() + first / kBlockCols)];
      cols_.add(col, count, block.columns, in_block, block.first_row);
      cols_.add_nonfinite(col, count, block.col_nonfinite, in_block);
      if (reading_.left == nullptr) continue;
      for (std::size_t c = 0; c < count; ++c) {
        result.left_times.plain[col + c] += block.left_times.plain[in_block + c] + block.left_times.lost[in_block + c];
      }
      if (!reading_.weighted) continue;
      for (std::size_t c = 0; c < count; ++c) {
        result.left_times.weighted[col + c] += block.left_times.weighted[in_block + c];
      }
    }
    cols_.finish(col, count, matrix_.rows, result.cols);
  }

  MatrixView matrix_;
  Reading reading_;
  std::int64_t band_rows_ = 0, bands_ = 0;
  std::vector<Block> blocks_;  // of the panel that is read, band by band
  LineTotals rows_, cols_;
};

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
  LineSums sums{std::vector<double>(lines.size()), std::vector<double>(lines.size())};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    sums.plain[i] = lines[i].sum;
    sums.weighted[i] = lines[i].weighted;
  }
  return sums;
}

LineReader::LineReader() : reader_(std::make_unique<Reader>()) {}
LineReader::~LineReader() = default;

const MatrixLines& LineReader::read(const MatrixView& matrix, const Reading& reading) {
  const bool by_columns = matrix.row_stride == 1 && matrix.col_stride != 1;  // they are contiguous: turn the matrix
  if (!by_columns) {
    reader_->read(matrix, reading);
    return reader_->result;
  }
  reader_->read(transposed(matrix), {reading.depth, reading.weighted, reading.in_fp32, reading.right, reading.left});
  std::swap(reader_->result.rows, reader_->result.cols);
  std::swap(reader_->result.left_times, reader_->result.times_right);
  return reader_->result;
}

MatrixLines read_lines(const MatrixView& matrix, const Reading& reading) { return LineReader().read(matrix, reading); }

std::optional<std::int64_t> locate(double sum_difference, double weighted_difference, std::int64_t length) {
  const double position = std::nearbyint(weighted_difference / sum_difference);
  if (!(position >= 1 && position <= static_cast<double>(length))) return std::nullopt;  // NaN too
  return static_cast<std::int64_t>(position) - 1;
}

}  // namespace ttrace::abft
