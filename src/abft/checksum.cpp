// A matrix is cut into bands of rows, a band into blocks, which different threads read, and a block into tiles of a few
// rows. A tile is read once, for the sums of its rows and of its columns. The sums of a block's columns are carried on
// from tile to tile; the blocks' sums are added in the order of the bands and, within a band, of the columns.
#include "ttrace/abft/checksum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "abft/tile_kernel.h"

namespace ttrace::abft {
namespace {

constexpr std::int64_t kBlockCols = kTileCols;
constexpr std::int64_t kPanelCols = 8 * kBlockCols;  // the column sums of a panel, of all bands, stay in cache
constexpr std::int64_t kBandRows = 256;              // a band has at least as many, unless it is the last
constexpr std::int64_t kMostBands = 32;              // more threads than this have nothing to do

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Adds up lines from their parts, in the order of the parts. `lost` is what rounding took from each sum.
struct LineTotals {
  std::vector<LineStatistics>& lines;
  std::vector<double> lost;

  void begin(std::int64_t count, std::int64_t length) {
    lines.assign(index(count), {.count = length});
    lost.assign(index(count), 0);
  }
  // Adds by Knuth's two-sum. `start` is the number of elements of the line before `part`.
  void add(std::size_t at, const RowSums& part, std::int64_t start) {
    LineStatistics& line = lines[at];
    const double next = line.sum + part.sum, added = next - line.sum;
    lost[at] += part.lost + ((line.sum - (next - added)) + (part.sum - added));
    line.sum = next;
    line.weighted += part.weighted + static_cast<double>(start) * part.sum;
    line.smallest = std::min(line.smallest, part.smallest);
    line.largest = std::max(line.largest, part.largest);
    line.absolute += part.absolute;
    line.square += part.square;
  }
  void finish() {
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i].sum += lost[i];
  }
};

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The sums of the rows and columns of a block: those of a band within some of its columns.
struct Block {
  std::int64_t first_row = 0, rows = 0, first_col = 0, cols = 0;
  ColumnSums columns;
  ColumnProducts left_times;
  std::vector<RowSums> lines;
  std::vector<Pair> times_right;
  std::vector<std::int64_t> row_nonfinite, col_nonfinite;  // empty: none

  void begin(const Reading& reading) {
    const std::size_t padded = index((cols + kStripCols - 1) / kStripCols * kStripCols);
    const auto begin_if = [padded](bool wanted, std::vector<double>& sums, double value = 0) {
      sums.assign(wanted ? padded : 0, value);
    };
    begin_if(reading.depth >= Depth::kSums, columns.sum);
    begin_if(reading.depth >= Depth::kSums, columns.lost);
    begin_if(reading.depth >= Depth::kSums && reading.weighted, columns.running);
    begin_if(reading.depth >= Depth::kExtrema, columns.smallest, std::numeric_limits<double>::infinity());
    begin_if(reading.depth >= Depth::kExtrema, columns.largest, -std::numeric_limits<double>::infinity());
    begin_if(reading.depth >= Depth::kNorms, columns.absolute);
    begin_if(reading.depth >= Depth::kNorms, columns.square);
    begin_if(reading.left != nullptr, left_times.plain);
    begin_if(reading.left != nullptr, left_times.lost);
    begin_if(reading.left != nullptr, left_times.weighted);
    lines.assign(index(reading.depth == Depth::kNone ? 0 : rows), {});
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

  RowSums column_sums(std::size_t col) const {
    RowSums result = {.sum = columns.sum[col], .lost = columns.lost[col]};
    if (!columns.running.empty()) {
      result.weighted = static_cast<double>(rows + 1) * columns.sum[col] - columns.running[col];
    }
    if (!columns.smallest.empty()) result.smallest = columns.smallest[col], result.largest = columns.largest[col];
    if (!columns.absolute.empty()) result.absolute = columns.absolute[col], result.square = columns.square[col];
    return result;
  }
};

}  // namespace

class LineReader::Reader {
 public:
  MatrixLines result;

  void read(const MatrixView& matrix, const Reading& reading) {
    matrix_ = matrix;
    reading_ = reading;
    band_rows_ = std::max(kBandRows, (matrix.rows + kMostBands - 1) / kMostBands);
    rows_.begin(wants_sums() ? matrix.rows : 0, matrix.cols);
    cols_.begin(wants_sums() ? matrix.cols : 0, matrix.rows);
    for (std::vector<double>* sums : {&result.left_times.plain, &result.left_times.weighted}) {
      sums->assign(index(reading.left == nullptr ? 0 : matrix.cols), 0);
    }
    for (std::vector<double>* sums : {&result.times_right.plain, &result.times_right.weighted}) {
      sums->assign(index(reading.right == nullptr ? 0 : matrix.rows), 0);
    }
#pragma omp parallel if (matrix_.rows * matrix_.cols > kBandRows * kBlockCols)
    for (std::int64_t panel = 0; panel < matrix_.cols; panel += kPanelCols) {
#pragma omp single
      begin_panel(panel);
#pragma omp for schedule(dynamic)
      for (Block& block : blocks_) read_block(block);
#pragma omp for schedule(static) nowait
      for (std::size_t band = 0; band < blocks_.size(); band += blocks_in_panel_) add_rows(band);
#pragma omp for schedule(static)
      for (std::size_t i = 0; i < blocks_in_panel_; ++i) add_columns(i);
    }
    rows_.finish();
    cols_.finish();
  }

 private:
  bool wants_sums() const { return reading_.depth != Depth::kNone; }

  Factors factors_at(const LineSums* sums, std::int64_t first) const {
    if (sums == nullptr) return {};
    return {sums->plain.data() + first, reading_.weighted ? sums->weighted.data() + first : nullptr};
  }

  // Cuts the panel that begins at column `panel` into blocks, band by band.
  void begin_panel(std::int64_t panel) {
    const std::int64_t cols = std::min(kPanelCols, matrix_.cols - panel);
    blocks_in_panel_ = index((cols + kBlockCols - 1) / kBlockCols);
    blocks_.resize(blocks_in_panel_ * index((matrix_.rows + band_rows_ - 1) / band_rows_));
    auto block = blocks_.begin();
    for (std::int64_t row = 0; row < matrix_.rows; row += band_rows_) {
      for (std::int64_t col = 0; col < cols; col += kBlockCols, ++block) {
        block->first_row = row, block->rows = std::min(band_rows_, matrix_.rows - row);
        block->first_col = panel + col, block->cols = std::min(kBlockCols, cols - col);
      }
    }
  }

  void read_block(Block& block) const {
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
      read_tile(tile, reading, block.lines.empty() ? nullptr : &block.lines[index(row)], block.columns,
                block.left_times);
    }
    if (reading_.right != nullptr) {
      multiply_rows(tile, factors_at(reading_.right, block.first_col), reading_.in_fp32,
                    &block.times_right[index(row)]);
    }
  }

  // Adds the rows of the band whose first block is number `first`.
  void add_rows(std::size_t first) {
    for (std::size_t i = first; i < first + blocks_in_panel_; ++i) {
      const Block& block = blocks_[i];
      for (std::size_t r = 0; r < index(block.rows); ++r) {
        const std::size_t row = index(block.first_row) + r;
        if (wants_sums()) {
          rows_.add(row, block.lines[r], block.first_col);
          if (!block.row_nonfinite.empty()) result.rows[row].nonfinite += block.row_nonfinite[r];
        }
        if (reading_.right == nullptr) continue;
        result.times_right.plain[row] += block.times_right[r].plain;
        result.times_right.weighted[row] += block.times_right[r].weighted;
      }
    }
  }

  // Adds the columns of the panel's block number `i`, in the order of the bands.
  void add_columns(std::size_t i) {
    for (; i < blocks_.size(); i += blocks_in_panel_) {
      const Block& block = blocks_[i];
      for (std::size_t c = 0; c < index(block.cols); ++c) {
        const std::size_t col = index(block.first_col) + c;
        if (wants_sums()) {
          cols_.add(col, block.column_sums(c), block.first_row);
          if (!block.col_nonfinite.empty()) result.cols[col].nonfinite += block.col_nonfinite[c];
        }
        if (reading_.left == nullptr) continue;
        result.left_times.plain[col] += block.left_times.plain[c] + block.left_times.lost[c];
        result.left_times.weighted[col] += block.left_times.weighted[c];
      }
    }
  }

  MatrixView matrix_;
  Reading reading_;
  std::int64_t band_rows_ = 0;
  std::vector<Block> blocks_;  // of the panel that is read
  std::size_t blocks_in_panel_ = 0;
  LineTotals rows_{result.rows, {}}, cols_{result.cols, {}};
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
  LineSums sums;
  for (const LineStatistics& line : lines) {
    sums.plain.push_back(line.sum);
    sums.weighted.push_back(line.weighted);
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
