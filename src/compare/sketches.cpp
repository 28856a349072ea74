// Cells of shards are cells of the logical tensor, in another place: they are moved there, and terms are added up.
// Where the border of a shard lies inside a cell, no sum of the logical tensor can be made of those of the shard, and
// the tensor is not seen.
#include "compare/sketches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "compare/same_bits.h"
#include "merge/overlay.h"
#include "merge/region.h"
#include "numeric/convert.h"
#include "numeric/xxh3.h"
#include "sketch/cells.h"
#include "sketch/error.h"

namespace ttrace {
namespace {

// The edges of the cells of a tensor that was recorded as a sketch, at least in part; null for one that was not.
const Shape* edges_of(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    if (piece.entry->sketch) return &piece.entry->sketch->edges;
  }
  return nullptr;
}

Shape local_start(const Piece& piece) { return index_at(piece.offset, piece.entry->shape); }

// Says why the sketch of a piece does not give cells of the logical tensor; empty where it does.
std::string objection_to(const Piece& piece, const Shape& shape, const Shape& edges) {
  const Entry& entry = *piece.entry;
  if (entry.sketch->edges != edges) {
    return fmt::format("rank {} sketched it in cells of {}, and others in cells of {}", piece.rank,
                       to_string(entry.sketch->edges), to_string(edges));
  }
  if (entry.shape.size() != shape.size() || piece.strides != row_major_strides(entry.shape)) {
    return fmt::format("rank {} sketched it with other dimensions, {}", piece.rank, to_string(entry.shape));
  }
  const Shape start = local_start(piece);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t end = start[d] + piece.logical.size[d],
                       logical_end = piece.logical.start[d] + piece.logical.size[d];
    const bool ends_both = end == entry.shape[d] && logical_end == shape[d];
    const bool fits = start[d] % edges[d] == 0 && piece.logical.start[d] % edges[d] == 0 &&
                      (piece.logical.size[d] % edges[d] == 0 || ends_both);
    if (fits) continue;
    return fmt::format(
        "its sketches are of cells of {}, and what rank {} holds, {} to {} of dimension {}, begins or ends "
        "inside of one",
        to_string(edges), piece.rank, piece.logical.start[d], logical_end - 1, d);
  }
  return "";
}

std::string objection_to(const LogicalTensor& tensor, const std::vector<Piece>& pieces, const Shape& edges) {
  if (edges.size() != tensor.shape.size()) return fmt::format("it has {} dimensions", tensor.shape.size());
  if (!tensor.sketched) return "";
  if (tensor.rows) return "its sketch is of rows that other ranks, or the other side, have elsewhere";
  for (const Piece& piece : pieces) {
    if (!piece.entry->sketch) continue;
    if (std::string objection = objection_to(piece, tensor.shape, edges); !objection.empty()) return objection;
  }
  return "";
}

void require_recorded(const Piece& piece, std::set<const Entry*>& verified) {
  const Entry& entry = *piece.entry;
  if (!verified.insert(&entry).second || XXH3_64bits(piece.data, entry.bytes) == entry.checksum) return;
  throw InputError(fmt::format("{}: the bytes of {} are not those that were recorded; expected its checksum, {:016x}",
                               piece.file == nullptr ? "" : piece.file->path(), to_string(entry.id), entry.checksum));
}

Cell checked_cell(const Piece& piece, std::int64_t number, std::int64_t cell_elements) {
  const Dtype dtype = piece.entry->dtype;
  const Cell cell = read_cell(piece.data + number * static_cast<std::int64_t>(bytes_of_cell(dtype)), dtype);
  if (is_possible(cell, cell_elements)) return cell;
  throw InputError(fmt::format("{}: {}: cell {} of its sketch is none: sums that are NaN, or a negative norm or count",
                               piece.file == nullptr ? "" : piece.file->path(), to_string(piece.entry->id), number));
}

// Copies the elements of `box` from a piece to `out`, which is row-major in a cell that begins at `start`.
void gather(const Piece& piece, const Box& box, const Shape& start, const Shape& edges, Dtype to, std::byte* out) {
  const Dtype dtype = piece.entry->dtype;
  const std::int64_t size = size_of(dtype), to_size = size_of(to), width = box.size.back();
  const std::byte* const elements = piece.elements();
  const Shape strides = row_major_strides(edges), outer(box.size.begin(), box.size.end() - 1);
  for (std::int64_t row = 0; row < element_count(outer); ++row) {
    Shape index = index_at(row, outer);
    index.push_back(0);
    std::int64_t from = piece.offset, at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      from += (box.start[d] - piece.logical.start[d] + index[d]) * piece.strides[d];
      at += (box.start[d] - start[d] + index[d]) * strides[d];
    }
    const std::int64_t step = piece.strides.back();
    const std::int64_t run = step == 1 ? width : 1;
    for (std::int64_t i = 0; i < width; i += run) {
      const std::byte* const source = elements + (from + i * step) * size;
      std::byte* const target = out + (at + i) * to_size;
      if (to == dtype) {
        std::memcpy(target, source, static_cast<std::size_t>(run * size));
      } else {
        widen(source, dtype, run, reinterpret_cast<double*>(target));
      }
    }
  }
}

void add(Cell& into, const Cell& cell) {
  for (std::size_t i = 0; i < kCellSums; ++i) into.sums[i] += cell.sums[i];
  into.square += cell.square;
  into.largest = std::max(into.largest, cell.largest);
  into.nonfinite += cell.nonfinite;
}

// The sketch of a logical tensor.
struct LogicalSketch {
  Shape grid;
  std::vector<Cell> cells;
  std::vector<std::int32_t> ranks;  // of each cell, the rank that holds it, or its first term
  bool has_terms = false;           // then squares are not the sum's
};

// Makes the sketch of one replica.
class Sketching {
 public:
  Sketching(const LogicalTensor& tensor, const Shape& edges) : tensor_(tensor), edges_(edges) {
    sketch_.grid = cell_grid(tensor.shape, edges);
    const auto cells = static_cast<std::size_t>(element_count(sketch_.grid));
    sketch_.cells.resize(cells);
    sketch_.ranks.assign(cells, -1);
  }

  LogicalSketch make(const std::vector<Piece>& pieces) {
    std::vector<const Piece*> whole;  // of one term
    std::int32_t term = 0;
    for (const Piece& piece : pieces) {
      if (piece.replica != 0 || is_empty(piece.logical)) continue;
      if (piece.term != term) {
        add_whole(whole);
        whole.clear();
        term = piece.term;
        sketch_.has_terms = true;
      }
      if (piece.entry->sketch) {
        add_sketched(piece);
      } else {
        whole.push_back(&piece);
      }
    }
    add_whole(whole);
    divide_by_scale();
    return std::move(sketch_);
  }

 private:
  // The cells that a box touches: their indices in the grid.
  Box cells_of(const Box& box) const {
    Box cells = box;
    for (std::size_t d = 0; d < edges_.size(); ++d) {
      cells.start[d] = box.start[d] / edges_[d];
      cells.size[d] = (box.start[d] + box.size[d] - 1) / edges_[d] + 1 - cells.start[d];
    }
    return cells;
  }

  std::size_t number_of(const Shape& index, const Shape& grid) const {
    std::int64_t number = 0;
    for (std::size_t d = 0; d < grid.size(); ++d) number = number * grid[d] + index[d];
    return static_cast<std::size_t>(number);
  }

  void take_rank(std::size_t cell, std::int32_t rank) {
    if (sketch_.ranks[cell] < 0) sketch_.ranks[cell] = rank;
  }

  void add_sketched(const Piece& piece) {
    const Box cells = cells_of(piece.logical);
    const Shape local_grid = cell_grid(piece.entry->shape, edges_), start = local_start(piece);
    for (std::int64_t i = 0; i < element_count(cells.size); ++i) {
      Shape index = index_at(i, cells.size), local = index;
      for (std::size_t d = 0; d < index.size(); ++d) {
        index[d] += cells.start[d];
        local[d] += start[d] / edges_[d];
      }
      const std::size_t number = number_of(index, sketch_.grid);
      add(sketch_.cells[number],
          checked_cell(piece, static_cast<std::int64_t>(number_of(local, local_grid)), element_count(edges_)));
      take_rank(number, piece.rank);
    }
  }

  void add_whole(const std::vector<const Piece*>& pieces) {
    if (pieces.empty()) return;
    const Dtype first = pieces[0]->entry->dtype;
    const bool is_one_dtype =
        can_be_sketched(first) &&
        std::all_of(pieces.begin(), pieces.end(), [&](const Piece* piece) { return piece->entry->dtype == first; });
    const Dtype dtype = is_one_dtype ? first : Dtype::kFloat64;
    const std::int64_t cell_elements = element_count(edges_);
    std::vector<std::byte> elements;
    for (std::size_t number = 0; number < sketch_.cells.size(); ++number) {
      Box cell{index_at(static_cast<std::int64_t>(number), sketch_.grid), edges_};
      for (std::size_t d = 0; d < edges_.size(); ++d) cell.start[d] *= edges_[d];
      bool is_held = false;
      for (const Piece* piece : pieces) {
        const auto common = common_part(cell, piece->logical);
        if (!common) continue;
        if (!is_held) elements.assign(static_cast<std::size_t>(cell_elements * size_of(dtype)), std::byte{});
        is_held = true;
        gather(*piece, *common, cell.start, edges_, dtype, elements.data());
        take_rank(number, piece->rank);
      }
      if (is_held) add(sketch_.cells[number], sketch_cell(elements.data(), dtype, cell_elements));
    }
  }

  void divide_by_scale() {
    const double scale = tensor_.scale;
    if (scale == 1) return;
    for (Cell& cell : sketch_.cells) {
      for (double& sum : cell.sums) sum /= scale;
      cell.square /= scale * scale;
      cell.largest /= std::fabs(scale);
    }
  }

  const LogicalTensor& tensor_;
  const Shape& edges_;
  LogicalSketch sketch_;
};

// Tells whether it is shown that two tensors are equal bit for bit: they have the same shards of the same bytes.
bool are_equal(const std::vector<Piece>& reference, const std::vector<Piece>& candidate) {
  const auto first_replica = [](const std::vector<Piece>& pieces) {
    std::vector<const Piece*> found;
    for (const Piece& piece : pieces) {
      if (piece.replica == 0) found.push_back(&piece);
    }
    return found;
  };
  const auto shard_of = [](const Piece& piece) {
    return std::tie(piece.term, piece.logical.start, piece.logical.size, piece.offset, piece.entry->dtype,
                    piece.entry->shape);
  };
  const std::vector<const Piece*> a = first_replica(reference), b = first_replica(candidate);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Piece* one, const Piece* other) {
    return shard_of(*one) == shard_of(*other) &&
           have_same_bits(*one->entry, one->data, *other->entry, other->data) == SameBits::kYes;
  });
}

double square_of_sums(const Cell& cell) {
  double square = 0;
  for (const double sum : cell.sums) square += sum * sum;
  return square;
}

double square_of(const LogicalSketch& sketch) {
  double square = 0;
  for (const Cell& cell : sketch.cells) square += sketch.has_terms ? square_of_sums(cell) : cell.square;
  return square;
}

CellSums difference_of(const Cell& reference, const Cell& candidate) {
  CellSums sums;
  for (std::size_t i = 0; i < kCellSums; ++i) sums[i] = candidate.sums[i] - reference.sums[i];
  return sums;
}

// Finds the cell whose estimate is the largest.
void find_worst_cell(const std::vector<CellSums>& differences, SketchMeasure& measure, std::size_t& worst) {
  for (std::size_t i = 0; i < differences.size(); ++i) {
    double square = 0;
    for (const double sum : differences[i]) square += sum * sum;
    if (square <= measure.cell_square) continue;
    measure.cell_square = square;
    worst = i;
  }
  if (measure.cell_square == 0) return;
  // It is the largest of so many.
  const double sureness = kSureness + std::log(static_cast<double>(differences.size()));
  measure.cell_widening = widening_of({&differences[worst], 1}, sureness);
}

Difference measure(const LogicalTensor& shape_of, const Shape& edges, const LogicalSketch& reference,
                   const LogicalSketch& candidate) {
  Difference difference;
  difference.elements = element_count(shape_of.shape);
  difference.differing = difference.elements;
  difference.reference_square = square_of(reference);
  difference.candidate_square = square_of(candidate);
  SketchMeasure measure;
  measure.cells = static_cast<std::int64_t>(reference.cells.size());
  measure.cell_elements = element_count(edges);
  measure.cell_rows = measure.cell_elements / edges.back();
  measure.width = shape_of.shape.back();
  std::vector<CellSums> differences;
  differences.reserve(reference.cells.size());
  double along = 0;
  for (std::size_t i = 0; i < reference.cells.size(); ++i) {
    const Cell &a = reference.cells[i], &b = candidate.cells[i];
    differences.push_back(difference_of(a, b));
    double square = 0;
    for (std::size_t k = 0; k < kCellSums; ++k) {
      square += differences[i][k] * differences[i][k];
      along += differences[i][k] * a.sums[k];
    }
    difference.difference_square += square;
    difference.square_by_rank[candidate.ranks[i]] += square;
    difference.reference_nan += a.nonfinite;
    difference.candidate_nan += b.nonfinite;
    const std::int64_t mismatch = std::abs(a.nonfinite - b.nonfinite);
    difference.nonfinite_mismatch += mismatch;
    if (mismatch > 0) difference.nonfinite_by_rank[candidate.ranks[i]] += mismatch;
    difference.reference_max_abs = std::max(difference.reference_max_abs, a.largest);
  }
  measure.widening = widening_of(differences);
  std::size_t worst = 0;
  find_worst_cell(differences, measure, worst);
  if (measure.cell_square > 0) {
    measure.worst_cell = index_at(static_cast<std::int64_t>(worst), reference.grid);
    for (std::size_t d = 0; d < edges.size(); ++d) {
      measure.worst_cell[d] *= edges[d];
      measure.worst_cell_size.push_back(std::min(edges[d], shape_of.shape[d] - measure.worst_cell[d]));
    }
    measure.worst_rank = candidate.ranks[worst];
  }
  // ||c||^2 = ||r||^2 + 2 <e, r> + ||e||^2, whose norms are exact: only the last term is estimated. Norms of terms do
  // not add up; then <e, r> is estimated by its sketches, whose error is of the order of ||e|| ||r||.
  const double unsure = measure.widening * measure.widening - 1, rel_err = difference.rel_err();
  const bool is_exact = !reference.has_terms && !candidate.has_terms;
  difference.along =
      is_exact ? (difference.candidate_square - difference.reference_square - difference.difference_square) / 2 : along;
  measure.scale_error = is_exact ? rel_err * rel_err * unsure / 2 : rel_err * unsure;
  if (is_exact && difference.reference_square == 0 && difference.candidate_square == 0) difference.differing = 0;
  difference.sketch = std::move(measure);
  return difference;
}

// The difference of a replica from replica 0.
struct ReplicaSketch {
  double square = 0;
  std::set<std::int32_t> ranks;
};

ReplicaSketch compare_replica(const LogicalSketch& first, const LogicalSketch& other) {
  ReplicaSketch result;
  for (std::size_t i = 0; i < first.cells.size(); ++i) {
    if (first.cells[i] == other.cells[i]) continue;
    for (const double sum : difference_of(first.cells[i], other.cells[i])) result.square += sum * sum;
    result.ranks.insert(other.ranks[i]);
  }
  return result;
}

// A side of the pair: its replicas, one after the other.
struct Side {
  const LogicalTensor& tensor;
  const std::vector<Piece> pieces = tensor.pieces();

  std::vector<Piece> seen_by(std::int32_t replica) const {
    return replica == 0 ? pieces : seen_by_replica(tensor, replica).pieces();
  }
  LogicalSketch sketch(const Shape& edges, std::int32_t replica) const {
    return Sketching(tensor, edges).make(seen_by(replica));
  }
  // Returns the difference of a replica, whose sketch is `copy`, from replica 0. Where their bits are the same,
  // sketches differ because one was made on a device, and another one on a host.
  ReplicaSketch compare(const LogicalSketch& first, const LogicalSketch& copy, std::int32_t replica,
                        bool checksums) const {
    ReplicaSketch differing = compare_replica(first, copy);
    const bool is_rounding = !differing.ranks.empty() && checksums && are_equal(pieces, seen_by(replica));
    return is_rounding ? ReplicaSketch() : differing;
  }
  std::int32_t last_replica() const {
    std::int32_t last = 0;
    for (const Piece& piece : pieces) last = std::max(last, piece.replica);
    return last;
  }
};

}  // namespace

bool is_worse(const Difference& a, const Difference& b) {
  if (a.nonfinite_mismatch != b.nonfinite_mismatch) return a.nonfinite_mismatch > b.nonfinite_mismatch;
  return a.rel_err() > b.rel_err();
}

std::string why_not_by_sketches(const TensorPair& pair) {
  const std::vector<Piece> reference = pair.reference->pieces(), candidate = pair.candidate->pieces();
  const Shape *of_reference = edges_of(reference), *of_candidate = edges_of(candidate);
  if (of_reference != nullptr && of_candidate != nullptr && *of_reference != *of_candidate) {
    return fmt::format("the reference sketched it in cells of {}, and the candidate in cells of {}",
                       to_string(*of_reference), to_string(*of_candidate));
  }
  const Shape& edges = of_reference != nullptr ? *of_reference : *of_candidate;
  if (std::string objection = objection_to(*pair.candidate, candidate, edges); !objection.empty()) return objection;
  std::string objection = objection_to(*pair.reference, reference, edges);
  return objection.empty() ? objection : fmt::format("in the reference, {}", objection);
}

Difference compare_sketches(const TensorPair& pair, bool checksums) {
  const Side reference{*pair.reference}, candidate{*pair.candidate};
  if (checksums) {
    std::set<const Entry*> verified;
    for (const Side* side : {&reference, &candidate}) {
      for (const Piece& piece : side->pieces) require_recorded(piece, verified);
    }
  }
  const Shape edges = pair.reference->sketched ? *edges_of(reference.pieces) : *edges_of(candidate.pieces);
  const LogicalSketch first = reference.sketch(edges, 0), other = candidate.sketch(edges, 0);
  Difference worst = measure(*pair.reference, edges, first, other);
  const bool has_one_scale = pair.reference->scale == pair.candidate->scale;
  if (has_one_scale && are_equal(reference.pieces, candidate.pieces)) worst.differing = 0;
  ReplicaSketch all;
  for (std::int32_t replica = 1; replica <= candidate.last_replica(); ++replica) {
    const LogicalSketch copy = candidate.sketch(edges, replica);
    ReplicaSketch differing = candidate.compare(other, copy, replica, checksums);
    if (differing.ranks.empty()) continue;
    all.square = std::max(all.square, differing.square);
    all.ranks.merge(differing.ranks);
    if (Difference of_copy = measure(*pair.reference, edges, first, copy); is_worse(of_copy, worst)) {
      worst = std::move(of_copy);
    }
  }
  worst.replica_square = all.square;
  worst.replica_ranks.assign(all.ranks.begin(), all.ranks.end());
  ReplicaSketch of_reference;
  for (std::int32_t replica = 1; replica <= reference.last_replica(); ++replica) {
    ReplicaSketch differing = reference.compare(first, reference.sketch(edges, replica), replica, checksums);
    of_reference.square = std::max(of_reference.square, differing.square);
    of_reference.ranks.merge(differing.ranks);
  }
  worst.reference_replica_square = of_reference.square;
  worst.reference_replica_ranks.assign(of_reference.ranks.begin(), of_reference.ranks.end());
  for (const Side* side : {&reference, &candidate}) {
    for (const Piece& piece : side->pieces) {
      if (piece.file != nullptr) piece.file->release(piece.data, piece.entry->bytes);
    }
  }
  return worst;
}

}  // namespace ttrace
