#include "sketch/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "sketch/cell_kernel.h"
#include "sketch/signs.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMostEdge = 128;
constexpr std::uint64_t kLeastShrinking = 16;
constexpr std::int64_t kMostScores = 256;  // of a router, one for each expert: near ties are told by its elements

// A cell in a file: of fp16 and bf16, and of the wider dtypes, whose errors are too small for sums in fp32. The sums
// are to be multiplied by 2^exponent, which is 0 but where fp32 does not hold them: a mask of bf16's largest numbers.
template <class Number, class Count, class Exponent>
struct StoredCell {
  Number sums[kCellSums];
  double square;
  Number largest;
  Count nonfinite;
  Exponent exponent;
};
using NarrowCell = StoredCell<float, std::uint16_t, std::int16_t>;
using WideCell = StoredCell<double, std::uint32_t, std::int32_t>;
constexpr int kExponent = 32;
static_assert(sizeof(NarrowCell) == 80 && sizeof(WideCell) == 152, "stored as they are");

bool is_wide(Dtype dtype) { return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64; }

// Both sides must have cells of the same edges, and each knows its own shard alone. Once tensor parallelism has split
// them, columns are multiples of 128 as a rule (the size of a head), and rarely of 1024.
std::int64_t edge_of(std::int64_t size) {
  const auto holding =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(size, std::int64_t{1}))));
  return std::min(holding, kMostEdge);
}

template <class Stored>
void append(const Cell& cell, std::string& out) {
  Stored stored{};
  using Number = decltype(stored.largest);
  const auto fits = [](double sum) { return std::fabs(sum) <= std::numeric_limits<Number>::max(); };
  if (!std::all_of(cell.sums.begin(), cell.sums.end(), fits)) stored.exponent = kExponent;
  for (std::size_t i = 0; i < kCellSums; ++i) {
    stored.sums[i] = static_cast<Number>(std::ldexp(cell.sums[i], -stored.exponent));
  }
  stored.square = cell.square;
  stored.largest = static_cast<Number>(cell.largest);
  stored.nonfinite = static_cast<decltype(stored.nonfinite)>(cell.nonfinite);
  out.append(reinterpret_cast<const char*>(&stored), sizeof stored);
}

template <class Stored>
Cell read(const std::byte* from) {
  Stored stored;
  std::memcpy(&stored, from, sizeof stored);
  Cell cell;
  for (std::size_t i = 0; i < kCellSums; ++i) {
    cell.sums[i] = std::ldexp(static_cast<double>(stored.sums[i]), stored.exponent);
  }
  cell.square = stored.square;
  cell.largest = stored.largest;
  cell.nonfinite = static_cast<std::int64_t>(stored.nonfinite);
  return cell;
}

// Says where the rows of a cell lie: its boxes of one element in all dimensions but the last.
class RowsOfCell {
 public:
  RowsOfCell(const Shape& shape, const Shape& edges)
      : shape_(shape), edges_(edges), strides_(row_major_strides(shape)) {
    const Shape outer(edges.begin(), edges.end() - 1);
    for (std::int64_t i = 0; i < element_count(outer); ++i) {
      rows_.push_back(index_at(i, outer));
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < outer.size(); ++d) offset += rows_.back()[d] * strides_[d];
      offsets_.push_back(offset);
    }
  }

  std::int64_t length() const { return edges_.back(); }
  std::size_t count() const { return rows_.size(); }
  std::int64_t offset(std::size_t row) const { return offsets_[row]; }

  // Tells whether the cell that begins at `start` has this row.
  bool has(std::size_t row, const Shape& start) const {
    for (std::size_t d = 0; d + 1 < shape_.size(); ++d) {
      if (start[d] + rows_[row][d] >= shape_[d]) return false;
    }
    return true;
  }
  std::int64_t offset_of(const Shape& start) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < start.size(); ++d) offset += start[d] * strides_[d];
    return offset;
  }
  bool is_whole(const Shape& start) const {
    for (std::size_t d = 0; d < start.size(); ++d) {
      if (start[d] + edges_[d] > shape_[d]) return false;
    }
    return true;
  }

 private:
  const Shape &shape_, &edges_;
  Shape strides_;
  std::vector<Shape> rows_;
  std::vector<std::int64_t> offsets_;
};

// Copies the elements of the cell at `start` to `out`, which has zeros in it, row-major in the whole cell.
void gather(const std::byte* data, std::int64_t size, const RowsOfCell& rows, const Shape& start, const Shape& shape,
            std::byte* out) {
  const std::int64_t length = std::min(rows.length(), shape.back() - start.back());
  for (std::size_t row = 0; row < rows.count(); ++row) {
    if (!rows.has(row, start)) continue;
    std::memcpy(out + static_cast<std::int64_t>(row) * rows.length() * size,
                data + (rows.offset_of(start) + rows.offset(row)) * size, static_cast<std::size_t>(length * size));
  }
}

}  // namespace

bool can_be_sketched(Dtype dtype) { return is_wide(dtype) || dtype == Dtype::kFloat16 || dtype == Dtype::kBFloat16; }

std::optional<Shape> cell_edges(Dtype dtype, const Shape& shape) {
  const std::int64_t elements = element_count(shape);
  if (!can_be_sketched(dtype) || shape.size() < 2 || elements < kLeastSketched) return std::nullopt;
  const bool may_be_scores = shape.size() <= 3 && shape.back() <= kMostScores;
  if (may_be_scores) return std::nullopt;
  Shape edges(shape.size(), 1);
  edges.back() = edge_of(shape.back());
  const auto rows = std::max_element(shape.begin(), shape.end() - 1) - shape.begin();
  edges[static_cast<std::size_t>(rows)] = edge_of(shape[static_cast<std::size_t>(rows)]);
  const auto cells = static_cast<std::uint64_t>(element_count(cell_grid(shape, edges)));
  const auto bytes = static_cast<std::uint64_t>(elements * size_of(dtype));
  if (cells * bytes_of_cell(dtype) > bytes / kLeastShrinking) return std::nullopt;
  return edges;
}

std::string objection_to_edges(const Shape& edges, const Shape& shape) {
  if (edges.size() != shape.size() || shape.empty()) return "have another number of dimensions";
  std::int64_t elements = 1;
  for (const std::int64_t edge : edges) {
    if (edge < 1 || edge > kMostCellElements || !std::has_single_bit(static_cast<std::uint64_t>(edge))) {
      return "are no powers of two";
    }
    elements *= edge;
    if (elements > kMostCellElements) return "hold more than 16384 elements";
  }
  return "";
}

Shape cell_grid(const Shape& shape, const Shape& edges) {
  Shape grid;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    grid.push_back(shape[d] == 0 ? 0 : (shape[d] - 1) / edges[d] + 1);
  }
  return grid;
}

std::uint64_t bytes_of_cell(Dtype dtype) { return is_wide(dtype) ? sizeof(WideCell) : sizeof(NarrowCell); }

Cell sketch_cell(const std::byte* elements, Dtype dtype, std::int64_t count) {
  const std::int64_t size = size_of(dtype);
  if (count < kChunkElements) {
    std::array<std::byte, kChunkElements * sizeof(double)> padded{};
    std::memcpy(padded.data(), elements, static_cast<std::size_t>(count * size));
    const std::byte* const chunk = padded.data();
    return sketch_chunks({&chunk, 1}, dtype);
  }
  std::array<const std::byte*, kChunks> chunks;
  const auto used = static_cast<std::size_t>(count / kChunkElements);
  for (std::size_t i = 0; i < used; ++i) chunks[i] = elements + static_cast<std::int64_t>(i) * kChunkElements * size;
  return sketch_chunks({chunks.data(), used}, dtype);
}

std::string sketch_of(const std::byte* data, Dtype dtype, const Shape& shape, const Shape& edges) {
  const Shape grid = cell_grid(shape, edges);
  const std::int64_t cells = element_count(grid), cell_elements = element_count(edges), size = size_of(dtype);
  std::string out;
  out.reserve(static_cast<std::size_t>(cells) * bytes_of_cell(dtype));
  const RowsOfCell rows(shape, edges);
  // Where the rows of a cell are whole chunks, they are read where they lie.
  const bool in_place = edges.back() % kChunkElements == 0;
  std::vector<std::byte> gathered;
  std::array<const std::byte*, kChunks> chunks;
  for (std::int64_t i = 0; i < cells; ++i) {
    Shape start = index_at(i, grid);
    for (std::size_t d = 0; d < start.size(); ++d) start[d] *= edges[d];
    Cell cell;
    if (in_place && rows.is_whole(start)) {
      const std::byte* const first = data + rows.offset_of(start) * size;
      std::size_t used = 0;
      for (std::size_t row = 0; row < rows.count(); ++row) {
        for (std::int64_t column = 0; column < edges.back(); column += kChunkElements) {
          chunks[used++] = first + (rows.offset(row) + column) * size;
        }
      }
      cell = sketch_chunks({chunks.data(), used}, dtype);
    } else {
      gathered.assign(static_cast<std::size_t>(cell_elements * size), std::byte{});
      gather(data, size, rows, start, shape, gathered.data());
      cell = sketch_cell(gathered.data(), dtype, cell_elements);
    }
    is_wide(dtype) ? append<WideCell>(cell, out) : append<NarrowCell>(cell, out);
  }
  return out;
}

bool is_possible(const Cell& cell, std::int64_t count) {
  const bool are_sums = std::none_of(cell.sums.begin(), cell.sums.end(), [](double sum) { return std::isnan(sum); });
  return are_sums && cell.square >= 0 && cell.largest >= 0 && cell.nonfinite >= 0 && cell.nonfinite <= count;
}

Cell read_cell(const std::byte* stored, Dtype dtype) {
  return is_wide(dtype) ? read<WideCell>(stored) : read<NarrowCell>(stored);
}

}  // namespace ttrace
