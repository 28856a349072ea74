// Shows who holds which part of a tensor, as boxes to draw.
#include "page/shards.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kMostBoxes = 256;  // a stripe of each token on each rank would be a box, and nothing to look at

}  // namespace

ShardPicture depict_shards(const LogicalTensor& tensor) {
  using Terms = std::map<std::int32_t, std::int32_t>;                        // term -> rank
  std::map<std::pair<Shape, Shape>, std::map<std::int32_t, Terms>> holders;  // box -> replica -> terms
  std::set<std::int32_t> ranks;
  for (const Piece& piece : tensor.pieces()) {
    holders[{piece.logical.start, piece.logical.size}][piece.replica].emplace(piece.term, piece.rank);
    ranks.insert(piece.rank);
  }
  ShardPicture picture;
  picture.ranks = static_cast<std::int32_t>(ranks.size());
  for (const auto& [box, replicas] : holders) {
    if (picture.boxes.size() == kMostBoxes) {
      ++picture.left_out;
      continue;
    }
    ShardBox& held = picture.boxes.emplace_back(ShardBox{{box.first, box.second}, {}});
    for (const auto& [replica, terms] : replicas) {
      std::vector<std::int32_t>& list = held.replicas.emplace_back();
      for (const auto& [term, rank] : terms) list.push_back(rank);
    }
  }
  return picture;
}

}  // namespace ttrace
