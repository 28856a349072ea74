#include "ttrace/merge/overlay.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// A box of the logical tensor on one side, with all its terms.
struct Cell {
  Box logical;
  std::vector<StridedTerm> terms;
};

bool is_empty(const Box& box) {
  return std::any_of(box.size.begin(), box.size.end(), [](std::int64_t size) { return size <= 0; });
}

std::optional<Box> common_part(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t i = 0; i < a.start.size(); ++i) {
    common.start[i] = std::max(a.start[i], b.start[i]);
    common.size[i] = std::min(a.start[i] + a.size[i], b.start[i] + b.size[i]) - common.start[i];
    if (common.size[i] <= 0) return std::nullopt;
  }
  return common;
}

StridedTerm advanced(StridedTerm term, const Box& from, const Box& to) {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < term.strides.size(); ++i) {
    const std::int64_t steps = to.start[i] - from.start[i];
    elements += steps * term.strides[i];
    term.local_start[i] += steps;
  }
  term.data += elements * size_of(term.dtype);
  return term;
}

void append_advanced(std::vector<StridedTerm>& out, const std::vector<StridedTerm>& terms, const Box& from,
                     const Box& to) {
  for (const StridedTerm& term : terms) out.push_back(advanced(term, from, to));
}

Cell cell_of(const Piece& piece) {
  const Shape& shape = piece.entry->shape;
  StridedTerm term;
  term.data = piece.data;
  term.dtype = piece.entry->dtype;
  term.rank = piece.rank;
  term.file = piece.file;
  term.strides.assign(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) term.strides[i - 1] = term.strides[i] * shape[i];
  term.local_start.assign(shape.size(), 0);
  return {piece.logical, {advanced(std::move(term), {Shape(shape.size(), 0), shape}, piece.local)}};
}

// The dimension that tells the cells apart best.
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

// The cells of one replica. Terms may be cut differently: a cell is where one piece of each term meets.
std::vector<Cell> cells_of(const LogicalTensor& tensor, std::int32_t replica) {
  std::map<std::int32_t, std::vector<Cell>> by_term;
  for (const Piece& piece : tensor.pieces) {
    if (piece.replica == replica && !is_empty(piece.logical)) by_term[piece.term].push_back(cell_of(piece));
  }
  if (by_term.empty()) return {};
  std::vector<Cell> cells = std::move(by_term.begin()->second);
  for (auto next_term = std::next(by_term.begin()); next_term != by_term.end(); ++next_term) {
    std::vector<Cell> joined;
    for_each_common(cells, std::move(next_term->second), [&](const Cell& sum, const Cell& next, const Box& common) {
      Cell cell{common, {}};
      append_advanced(cell.terms, sum.terms, sum.logical, common);
      append_advanced(cell.terms, next.terms, next.logical, common);
      joined.push_back(std::move(cell));
    });
    cells = std::move(joined);
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

std::vector<std::vector<OverlayBox>> lay_over_replicas(const LogicalTensor& tensor, const std::vector<Cell>& first) {
  std::int32_t last = 0;
  for (const Piece& piece : tensor.pieces) last = std::max(last, piece.replica);
  std::vector<std::vector<OverlayBox>> replicas;
  for (std::int32_t replica = 1; replica <= last; ++replica) {
    replicas.push_back(lay_over(first, cells_of(tensor, replica)));
  }
  return replicas;
}

// What is left of `piece` without the logical elements of `taken`: it is cut along one dimension after the
// other, and what lies outside is kept.
void append_remainder(std::vector<Piece>& out, Piece piece, const Box& taken) {
  const auto common = common_part(piece.logical, taken);
  if (!common) return out.push_back(std::move(piece));
  const auto slice = [](Piece part, std::size_t dim, std::int64_t skipped, std::int64_t size) {
    part.logical.start[dim] += skipped;
    part.local.start[dim] += skipped;
    part.logical.size[dim] = part.local.size[dim] = size;
    return part;
  };
  for (std::size_t i = 0; i < common->start.size(); ++i) {
    const std::int64_t before = common->start[i] - piece.logical.start[i];
    const std::int64_t after = piece.logical.size[i] - before - common->size[i];
    if (before > 0) out.push_back(slice(piece, i, 0, before));
    if (after > 0) out.push_back(slice(piece, i, before + common->size[i], after));
    piece = slice(std::move(piece), i, before, common->size[i]);
  }
}

}  // namespace

Overlay overlay(const LogicalTensor& reference, const LogicalTensor& candidate) {
  const std::vector<Cell> reference_cells = cells_of(reference, 0);
  const std::vector<Cell> candidate_cells = cells_of(candidate, 0);
  Overlay result;
  result.boxes = lay_over(reference_cells, candidate_cells);
  result.candidate_replicas = lay_over_replicas(candidate, candidate_cells);
  result.reference_replicas = lay_over_replicas(reference, reference_cells);
  result.reference_scale = reference.scale;
  result.candidate_scale = candidate.scale;
  return result;
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
  LogicalTensor seen = tensor;
  seen.pieces.clear();
  std::vector<Piece> rest;
  for (const Piece& piece : tensor.pieces) {
    if (piece.replica == replica) seen.pieces.push_back(piece);
    if (piece.replica == 0) rest.push_back(piece);
  }
  for (const Piece& own : std::vector<Piece>(seen.pieces)) {
    std::vector<Piece> left;
    for (const Piece& piece : rest) {
      if (piece.term == own.term) {
        append_remainder(left, piece, own.logical);
      } else {
        left.push_back(piece);
      }
    }
    rest = std::move(left);
  }
  seen.pieces.insert(seen.pieces.end(), rest.begin(), rest.end());
  for (Piece& piece : seen.pieces) piece.replica = 0;
  return seen;
}

}  // namespace ttrace
