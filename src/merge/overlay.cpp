#include "merge/overlay.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "merge/region.h"

namespace ttrace {
namespace {

// A box of the logical tensor on one side, with all its terms.
struct Cell {
  Box logical;
  std::vector<StridedTerm> terms;
};

StridedTerm advanced(StridedTerm term, const Box& from, const Box& to) {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < term.strides.size(); ++i) {
    elements += (to.start[i] - from.start[i]) * term.strides[i];
  }
  term.offset += elements;
  term.data += elements * size_of(term.dtype);
  return term;
}

void append_advanced(std::vector<StridedTerm>& out, const std::vector<StridedTerm>& terms, const Box& from,
                     const Box& to) {
  for (const StridedTerm& term : terms) out.push_back(advanced(term, from, to));
}

Cell cell_of(const Piece& piece) {
  StridedTerm term;
  term.dtype = piece.entry->dtype;
  term.data = piece.elements() + piece.offset * size_of(term.dtype);
  term.strides = piece.strides;
  term.rank = piece.rank;
  term.entry = piece.entry;
  term.offset = piece.offset;
  term.file = piece.file;
  return {piece.logical, {std::move(term)}};
}

// The dimension in which the cells have the most different starts.
std::size_t sweep_dimension(const std::vector<Cell>& cells) {
  std::size_t best = 0, most = 0;
  for (std::size_t i = 0; i < cells.front().logical.start.size(); ++i) {
    std::set<std::int64_t> starts;
    for (const Cell& cell : cells) starts.insert(cell.logical.start[i]);
    if (starts.size() > most) best = i, most = starts.size();
  }
  return best;
}

// Calls `visit(a, b, common)` for every two cells that share elements. Hundreds of shards on each side are
// common, and each meets only a few: the second list is searched, not scanned.
template <class Visit>
void for_each_common(const std::vector<Cell>& some, std::vector<Cell> others, Visit visit) {
  if (some.empty() || others.empty()) return;
  if (some.front().logical.start.empty()) return visit(some.front(), others.front(), Box{});
  const std::size_t dim = sweep_dimension(others);
  const auto start = [dim](const Cell& cell) { return cell.logical.start[dim]; };
  std::stable_sort(others.begin(), others.end(), [&](const Cell& a, const Cell& b) { return start(a) < start(b); });
  std::int64_t longest = 0;
  for (const Cell& other : others) longest = std::max(longest, other.logical.size[dim]);
  for (const Cell& one : some) {
    const auto before = [&](const Cell& other, std::int64_t position) { return start(other) < position; };
    auto other = std::lower_bound(others.begin(), others.end(), start(one) - longest + 1, before);
    for (; other != others.end() && start(*other) < start(one) + one.logical.size[dim]; ++other) {
      if (const auto common = common_part(one.logical, other->logical)) visit(one, *other, *common);
    }
  }
}

// Appends boxes that make up `box` without the elements of `taken`: the box is cut along one dimension after the other,
// and the parts that lie outside `taken` are kept.
void append_remainder(std::vector<Box>& out, Box box, const Box& taken) {
  const auto common = common_part(box, taken);
  if (!common) return out.push_back(std::move(box));
  const auto slice = [](Box part, std::size_t dim, std::int64_t start, std::int64_t size) {
    part.start[dim] = start;
    part.size[dim] = size;
    return part;
  };
  for (std::size_t i = 0; i < common->start.size(); ++i) {
    const std::int64_t end = box.start[i] + box.size[i], common_end = common->start[i] + common->size[i];
    if (box.start[i] < common->start[i]) out.push_back(slice(box, i, box.start[i], common->start[i] - box.start[i]));
    if (common_end < end) out.push_back(slice(box, i, common_end, end - common_end));
    box = slice(std::move(box), i, common->start[i], common->size[i]);
  }
}

// The part of a piece that lies in `box`.
Piece clipped(Piece piece, const Box& box) {
  for (std::size_t i = 0; i < box.start.size(); ++i) {
    piece.offset += (box.start[i] - piece.logical.start[i]) * piece.strides[i];
  }
  piece.logical = box;
  return piece;
}

// Boxes that make up `whole` without the boxes `taken`, which lie in it and share no element.
std::vector<Box> remainder(const Box& whole, const std::vector<Box>& taken) {
  std::vector<Box> left = {whole};
  for (const Box& hole : taken) {
    std::vector<Box> next;
    for (const Box& box : left) append_remainder(next, box, hole);
    left = std::move(next);
  }
  return left;
}

// Adds one more term to the sums. Cells are cut where they meet the term's, and stay as they are where it holds
// nothing.
std::vector<Cell> add_term(const std::vector<Cell>& sums, std::vector<Cell> term) {
  std::vector<Cell> joined;
  std::map<const Cell*, std::vector<Box>> met;
  for_each_common(sums, std::move(term), [&](const Cell& sum, const Cell& next, const Box& common) {
    Cell cell{common, {}};
    append_advanced(cell.terms, sum.terms, sum.logical, common);
    append_advanced(cell.terms, next.terms, next.logical, common);
    joined.push_back(std::move(cell));
    met[&sum].push_back(common);
  });
  for (const Cell& sum : sums) {
    for (const Box& box : remainder(sum.logical, met[&sum])) {
      Cell cell{box, {}};
      append_advanced(cell.terms, sum.terms, sum.logical, box);
      joined.push_back(std::move(cell));
    }
  }
  return joined;
}

// The cells of one replica. Terms may be cut differently, and terms after the first may hold only a part of the tensor.
std::vector<Cell> cells_of(const std::vector<Piece>& pieces, std::int32_t replica) {
  std::map<std::int32_t, std::vector<Cell>> by_term;
  for (const Piece& piece : pieces) {
    if (piece.replica == replica && !is_empty(piece.logical)) by_term[piece.term].push_back(cell_of(piece));
  }
  if (by_term.empty()) return {};
  std::vector<Cell> cells = std::move(by_term.begin()->second);
  for (auto next_term = std::next(by_term.begin()); next_term != by_term.end(); ++next_term) {
    cells = add_term(cells, std::move(next_term->second));
  }
  return cells;
}

std::vector<OverlayBox> lay_over(const std::vector<Cell>& reference, std::vector<Cell> candidate) {
  std::vector<OverlayBox> boxes;
  for_each_common(reference, std::move(candidate), [&](const Cell& a, const Cell& b, const Box& common) {
    OverlayBox box{common, {}, {}};
    append_advanced(box.reference, a.terms, a.logical, common);
    append_advanced(box.candidate, b.terms, b.logical, common);
    boxes.push_back(std::move(box));
  });
  std::stable_sort(boxes.begin(), boxes.end(),
                   [](const OverlayBox& a, const OverlayBox& b) { return a.logical.start < b.logical.start; });
  return boxes;
}

std::vector<std::vector<OverlayBox>> lay_over_replicas(const std::vector<Piece>& pieces,
                                                       const std::vector<Cell>& first) {
  std::int32_t last = 0;
  for (const Piece& piece : pieces) last = std::max(last, piece.replica);
  std::vector<std::vector<OverlayBox>> replicas;
  for (std::int32_t replica = 1; replica <= last; ++replica) {
    replicas.push_back(lay_over(first, cells_of(pieces, replica)));
  }
  return replicas;
}

}  // namespace

Overlay overlay(const LogicalTensor& reference, const LogicalTensor& candidate) {
  const std::vector<Piece> reference_pieces = reference.pieces(), candidate_pieces = candidate.pieces();
  const std::vector<Cell> reference_cells = cells_of(reference_pieces, 0);
  const std::vector<Cell> candidate_cells = cells_of(candidate_pieces, 0);
  Overlay result;
  result.boxes = lay_over(reference_cells, candidate_cells);
  result.candidate_replicas = lay_over_replicas(candidate_pieces, candidate_cells);
  result.reference_replicas = lay_over_replicas(reference_pieces, reference_cells);
  result.reference_scale = reference.scale;
  result.candidate_scale = candidate.scale;
  return result;
}

Shape local_index(const StridedTerm& term, const Shape& index) {
  std::int64_t position = term.offset;
  for (std::size_t i = 0; i < index.size(); ++i) position += index[i] * term.strides[i];
  return index_at(position, term.entry->shape);
}

std::optional<OverlayBox> clip(const OverlayBox& box, const Box& within) {
  const auto common = common_part(box.logical, within);
  if (!common) return std::nullopt;
  OverlayBox part{*common, {}, {}};
  append_advanced(part.reference, box.reference, box.logical, *common);
  append_advanced(part.candidate, box.candidate, box.logical, *common);
  return part;
}

LogicalTensor seen_by_replica(const LogicalTensor& tensor, std::int32_t replica) {
  std::vector<Piece> own, rest;
  for (const Piece& piece : tensor.pieces()) {
    if (piece.replica == replica) own.push_back(piece);
    if (piece.replica == 0) rest.push_back(piece);
  }
  std::vector<Piece> seen = own;
  for (const Piece& piece : rest) {
    std::vector<Box> taken;
    for (const Piece& other : own) {
      const auto common = other.term == piece.term ? common_part(piece.logical, other.logical) : std::nullopt;
      if (common) taken.push_back(*common);
    }
    for (const Box& box : remainder(piece.logical, taken)) seen.push_back(clipped(piece, box));
  }
  for (Piece& piece : seen) piece.replica = 0;
  LogicalTensor result = tensor;
  result.pieces = [seen = std::move(seen)] { return seen; };
  return result;
}

}  // namespace ttrace
