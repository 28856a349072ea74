#include "team/dealer.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ttrace {

Dealer::Dealer(std::span<const std::uint64_t> weights, std::vector<std::string> nodes)
    : weights_(weights.begin(), weights.end()), nodes_(std::move(nodes)), stretches_(nodes_.size()) {
  for (std::uint64_t& weight : weights_) weight = std::max<std::uint64_t>(weight, 1);
  const std::uint64_t total = std::accumulate(weights_.begin(), weights_.end(), std::uint64_t{0});
  std::size_t task = 0;
  std::uint64_t dealt = 0;
  for (std::size_t process = 0; process < stretches_.size(); ++process) {
    Stretch& stretch = stretches_[process];
    const std::uint64_t end = total / stretches_.size() * (process + 1);
    const bool is_last = process + 1 == stretches_.size();
    stretch.begin = task;
    // A task belongs to the stretch that its middle lies in.
    for (; task < weights_.size() && (is_last || dealt + weights_[task] / 2 < end); ++task) {
      dealt += weights_[task];
      stretch.weight += weights_[task];
    }
    stretch.end = task;
  }
}

Dealer::Stretch* Dealer::stretch_to_help(int process) {
  const std::string& node = nodes_[static_cast<std::size_t>(process)];
  Stretch* best = nullptr;
  bool best_is_near = false;
  for (std::size_t other = 0; other < stretches_.size(); ++other) {
    Stretch& stretch = stretches_[other];
    if (stretch.begin == stretch.end) continue;
    const bool is_near = nodes_[other] == node;
    if (best == nullptr || std::pair(is_near, stretch.weight) > std::pair(best_is_near, best->weight)) {
      best = &stretch;
      best_is_near = is_near;
    }
  }
  return best;
}

std::optional<std::size_t> Dealer::next(int process) {
  Stretch& own = stretches_[static_cast<std::size_t>(process)];
  if (own.begin < own.end) {
    own.weight -= weights_[own.begin];
    return own.begin++;
  }
  Stretch* const other = stretch_to_help(process);
  if (other == nullptr) return std::nullopt;
  --other->end;
  other->weight -= weights_[other->end];
  return other->end;
}

}  // namespace ttrace
