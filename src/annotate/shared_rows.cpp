#include "annotate/shared_rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

using Hashes = std::vector<std::vector<std::uint64_t>>;

// Counts how many rows of the candidate's parameter are of the reference's, by their places.
std::map<std::pair<std::size_t, std::size_t>, std::size_t> shared_by(const Hashes& reference, const Hashes& candidate) {
  std::unordered_map<std::uint64_t, std::set<std::size_t>> holders;
  for (std::size_t r = 0; r < reference.size(); ++r) {
    for (const std::uint64_t hash : reference[r]) {
      if (hash != 0) holders[hash].insert(r);
    }
  }
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> shared;
  for (std::size_t c = 0; c < candidate.size(); ++c) {
    for (const std::uint64_t hash : candidate[c]) {
      const auto found = holders.find(hash);
      if (found == holders.end()) continue;
      for (const std::size_t r : found->second) ++shared[{r, c}];
    }
  }
  return shared;
}

// Puts together what shares rows.
class Gathering {
 public:
  void add(std::size_t r, std::size_t c, bool transposed) {
    const auto a = of_[0].find(r), b = of_[1].find(c);
    const bool has_reference = a != of_[0].end(), has_candidate = b != of_[1].end();
    if (has_reference && has_candidate) {
      merge(a->second, b->second);
      return;
    }
    const std::size_t into = has_reference ? a->second : has_candidate ? b->second : all_.size();
    if (into == all_.size()) all_.emplace_back().transposed = transposed;
    if (!has_reference) put(0, r, into);
    if (!has_candidate) put(1, c, into);
  }

  std::vector<RowSharers> take() {
    std::erase_if(all_, [](const RowSharers& sharers) { return sharers.members[0].empty(); });
    return std::move(all_);
  }

 private:
  void put(std::size_t side, std::size_t t, std::size_t into) {
    all_[into].members[side].push_back(t);
    of_[side][t] = into;
  }

  void merge(std::size_t into, std::size_t from) {
    if (into == from) return;
    const RowSharers moved = std::exchange(all_[from], {});
    for (std::size_t side : {0, 1}) {
      for (const std::size_t t : moved.members[side]) put(side, t, into);
    }
  }

  std::vector<RowSharers> all_;
  std::map<std::size_t, std::size_t> of_[2];  // of a parameter, its place in `all_`
};

}  // namespace

std::vector<RowSharers> find_sharers(const RowHashes& reference, const RowHashes& candidate) {
  Gathering gathering;
  for (const bool transposed : {false, true}) {
    const Hashes& of_candidate = transposed ? candidate.columns : candidate.rows;
    for (const auto& [pair, count] : shared_by(reference.rows, of_candidate)) {
      const std::size_t smaller = std::min(reference.rows[pair.first].size(), of_candidate[pair.second].size());
      if (2 * count > smaller) gathering.add(pair.first, pair.second, transposed);
    }
  }
  return gathering.take();
}

}  // namespace ttrace
