// Reads both tensors once, along the last dimension, through the overlay of their pieces: nothing larger than one run
// of elements is in memory.
#include "page/error_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "merge/overlay.h"
#include "numeric/convert.h"

namespace ttrace {
namespace {

constexpr std::int64_t kMostCells = 64;  // along each dimension: a shard of eight is then eight cells wide
constexpr std::size_t kMostWorst = 10;

// Chooses the two dimensions to draw: those that are split first, then the longest, then the last.
ErrorMap map_of(const Shape& shape, const ShardPicture& shards) {
  std::vector<std::tuple<bool, std::int64_t, int>> dimensions;  // whether split, extent, which
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::set<std::int64_t> starts;
    for (const ShardBox& held : shards.boxes) starts.insert(held.box.start[d]);
    if (shape[d] > 1) dimensions.emplace_back(starts.size() > 1, shape[d], static_cast<int>(d));
  }
  std::sort(dimensions.rbegin(), dimensions.rend());
  ErrorMap map;
  if (!dimensions.empty()) map.column_dim = std::get<int>(dimensions[0]);
  if (dimensions.size() > 1) {
    const int other = std::get<int>(dimensions[1]);
    map.row_dim = std::min(map.column_dim, other);
    map.column_dim = std::max(map.column_dim, other);
  }
  const auto cells = [&](int dim) { return dim < 0 ? 1 : std::min(kMostCells, shape[static_cast<std::size_t>(dim)]); };
  map.rows = cells(map.row_dim);
  map.columns = cells(map.column_dim);
  map.largest.resize(static_cast<std::size_t>(map.rows * map.columns));
  return map;
}

// Returns, by index of the dimension, what its cell adds to the position in the map; zeros where the map does not show
// it.
std::vector<std::int64_t> cell_offsets(const ErrorMap& map, const Shape& shape, std::size_t dim) {
  const bool is_row = static_cast<int>(dim) == map.row_dim, is_column = static_cast<int>(dim) == map.column_dim;
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(shape[dim]));
  for (std::int64_t i = 0; (is_row || is_column) && i < shape[dim]; ++i) {
    offsets[static_cast<std::size_t>(i)] =
        is_row ? i * map.rows / shape[dim] * map.columns : i * map.columns / shape[dim];
  }
  return offsets;
}

double error_of(double reference, double candidate) {
  if (std::isfinite(reference) && std::isfinite(candidate)) return std::abs(reference - candidate);
  const bool is_same = reference == candidate || (std::isnan(reference) && std::isnan(candidate));
  return is_same ? 0 : std::numeric_limits<double>::infinity();
}

class Drawing {
 public:
  Drawing(const Shape& shape, Picture& picture) : shape_(shape), picture_(picture) {
    for (std::size_t d = 0; d < shape.size(); ++d) offsets_.push_back(cell_offsets(picture.map, shape, d));
  }

  // `index` is that of the run's first element.
  void add_run(const Shape& index, std::int32_t rank, const std::vector<double>& reference,
               const std::vector<double>& candidate) {
    std::int64_t cell = 0, position = 0;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      if (d + 1 < shape_.size()) cell += offsets_[d][static_cast<std::size_t>(index[d])];
      position = position * shape_[d] + index[d];
    }
    for (std::size_t j = 0; j < reference.size(); ++j) {
      const double error = error_of(reference[j], candidate[j]);
      if (error == 0) {
        ++picture_.equal;
        continue;
      }
      const std::int64_t along = shape_.empty() ? 0 : offsets_.back()[static_cast<std::size_t>(index.back()) + j];
      double& largest = picture_.map.largest[static_cast<std::size_t>(cell + along)];
      largest = std::max(largest, error);
      if (std::isfinite(error)) {
        ++picture_.octaves[std::ilogb(error)];
      } else {
        ++picture_.not_finite;
      }
      add_worst({error, position + static_cast<std::int64_t>(j), rank, reference[j], candidate[j]});
    }
  }

  void finish() {
    for (const Element& element : worst_) {
      picture_.worst.push_back(
          {index_at(element.position, shape_), element.rank, element.reference, element.candidate});
    }
  }

 private:
  struct Element {
    double error = 0;
    std::int64_t position = 0;
    std::int32_t rank = 0;
    double reference = 0, candidate = 0;
    // The larger error first; of equal ones the first in the tensor.
    bool comes_before(const Element& other) const {
      return error > other.error || (error == other.error && position < other.position);
    }
  };

  void add_worst(const Element& element) {
    if (worst_.size() == kMostWorst && !element.comes_before(worst_.back())) return;
    if (worst_.size() == kMostWorst) worst_.pop_back();
    const auto after = [](const Element& a, const Element& b) { return a.comes_before(b); };
    worst_.insert(std::upper_bound(worst_.begin(), worst_.end(), element, after), element);
  }

  const Shape& shape_;
  Picture& picture_;
  std::vector<std::vector<std::int64_t>> offsets_;  // by dimension
  std::vector<Element> worst_;
};

// Fills `values` with the sum of the terms over `scale`, `at` being the index of the first element in the box.
void read_run(const std::vector<StridedTerm>& terms, double scale, const Shape& at, std::vector<double>& buffer,
              std::vector<double>& values) {
  std::fill(values.begin(), values.end(), 0);
  const auto length = static_cast<std::int64_t>(values.size());
  buffer.resize(values.size());
  for (const StridedTerm& term : terms) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < at.size(); ++d) offset += at[d] * term.strides[d];
    const std::int64_t bytes = size_of(term.dtype);
    const std::int64_t stride = at.empty() ? 1 : term.strides.back();
    if (stride == 1) {
      widen(term.data + offset * bytes, term.dtype, length, buffer.data());
    } else {
      for (std::int64_t j = 0; j < length; ++j) {
        widen(term.data + (offset + j * stride) * bytes, term.dtype, 1, &buffer[static_cast<std::size_t>(j)]);
      }
    }
    for (std::size_t j = 0; j < values.size(); ++j) values[j] += buffer[j];
  }
  if (scale != 1) {
    for (double& value : values) value /= scale;
  }
}

void release_pages(const LogicalTensor& tensor) {
  for (const Piece& piece : tensor.pieces()) {
    if (piece.file != nullptr) piece.file->release(piece.data, piece.entry->bytes);
  }
}

}  // namespace

void depict_values(const LogicalTensor& reference, const LogicalTensor& candidate, Picture& picture) {
  const Shape& shape = reference.shape;
  picture.map = map_of(shape, picture.candidate);
  Drawing drawing(shape, picture);
  const Overlay pairs = overlay(reference, candidate);
  std::vector<double> buffer, reference_values, candidate_values;
  for (const OverlayBox& box : pairs.boxes) {
    if (is_empty(box.logical)) continue;
    const std::int64_t length = shape.empty() ? 1 : box.logical.size.back();
    reference_values.resize(static_cast<std::size_t>(length));
    candidate_values.resize(static_cast<std::size_t>(length));
    const std::int32_t rank = box.candidate.empty() ? -1 : box.candidate.front().rank;
    Shape at(shape.size(), 0), index = box.logical.start;  // in the box; in the tensor
    const std::int64_t runs = element_count(box.logical.size) / length;
    for (std::int64_t run = 0; run < runs; ++run) {
      read_run(box.reference, pairs.reference_scale, at, buffer, reference_values);
      read_run(box.candidate, pairs.candidate_scale, at, buffer, candidate_values);
      drawing.add_run(index, rank, reference_values, candidate_values);
      for (std::size_t d = shape.size(); d-- > 0;) {
        if (d + 1 == shape.size()) continue;
        index[d] = box.logical.start[d] + ++at[d];
        if (at[d] < box.logical.size[d]) break;
        at[d] = 0;
        index[d] = box.logical.start[d];
      }
    }
  }
  drawing.finish();
  release_pages(reference);
  release_pages(candidate);
}

}  // namespace ttrace
