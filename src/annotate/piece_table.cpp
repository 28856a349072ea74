#include "annotate/piece_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/describe.h"
#include "base/mesh.h"
#include "merge/region.h"
#include "text/table.h"

namespace ttrace {
namespace {

constexpr std::size_t kPiecesShown = 16;  // what a terminal shows at once, with both sides

// The part of the entry that a piece is, from its first element's index to behind its last one's. What lies
// between is not all the piece's where the entry is a flat fragment.
std::string describe_local(const Piece& piece) {
  const Shape& shape = piece.entry->shape;
  std::int64_t last = piece.offset;
  for (std::size_t d = 0; d < piece.strides.size(); ++d) last += (piece.logical.size[d] - 1) * piece.strides[d];
  Box box{index_at(piece.offset, shape), index_at(last, shape)};
  for (std::size_t d = 0; d < shape.size(); ++d) box.size[d] -= box.start[d] - 1;
  return describe(box);
}

std::string describe_coordinates(const Trace& trace, const Axes& axes, std::int32_t rank) {
  std::vector<std::string> words;
  for (const RankTrace& candidate : trace.ranks) {
    if (candidate.rank != rank) continue;
    for (const Axis& axis : axes) {
      words.push_back(fmt::format("{}={}", axis.name, candidate.coordinates.at(axis.name)));
    }
    break;
  }
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string table_of_pieces(const Trace& trace, const LogicalTensor& tensor, const Box& within) {
  TextTable table({{"rank"}, {"coordinates"}, {"local"}, {"logical"}, {"replica"}, {"term"}}, 4);
  std::vector<Piece> pieces = tensor.pieces();
  std::erase_if(pieces, [&](const Piece& piece) { return !common_part(piece.logical, within); });
  const Axes axes = factorings_of(trace.mesh)[tensor.factoring];
  for (std::size_t i = 0; i < std::min(kPiecesShown, pieces.size()); ++i) {
    const Piece& piece = pieces[i];
    table.add({std::to_string(piece.rank), describe_coordinates(trace, axes, piece.rank), describe_local(piece),
               describe(piece.logical), std::to_string(piece.replica), std::to_string(piece.term)});
  }
  if (pieces.size() <= kPiecesShown) return table.text();
  std::set<std::int32_t> ranks, replicas, terms;
  for (const Piece& piece : pieces) {
    ranks.insert(piece.rank);
    replicas.insert(piece.replica);
    terms.insert(piece.term);
  }
  return table.text() + fmt::format("    ... ({} pieces in all: ranks {}, replicas {}, terms {})\n", pieces.size(),
                                    ranks.size(), replicas.size(), terms.size());
}

}  // namespace ttrace
