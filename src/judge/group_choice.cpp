#include "judge/group_choice.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ScoredGroup {
  bool is_used = false;  // some of its experts were chosen
  double score = 0;
  double highest_left = -kInfinity;  // of the experts that were not chosen
};

ScoredGroup make_group(std::span<const double> scores, std::int64_t first, const ExpertGroups& groups,
                       const std::set<std::int64_t>& experts) {
  ScoredGroup group;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (experts.contains(first + static_cast<std::int64_t>(i))) {
      group.is_used = true;
    } else {
      group.highest_left = std::max(group.highest_left, scores[i]);
    }
  }
  std::vector<double> descending(scores.begin(), scores.end());
  std::sort(descending.begin(), descending.end(), std::greater<>());
  group.score = std::accumulate(descending.begin(), descending.begin() + groups.counted, 0.0);
  return group;
}

// The move where, of the groups that no expert was chosen from, those are taken that have the highest scores and no
// expert above `limit`. `all` has the used groups first, and of the others the higher scores.
double move_within(const std::vector<ScoredGroup>& all, const ExpertGroups& groups, double lowest_chosen,
                   double limit) {
  std::int64_t taken = 0;
  double lowest_taken = kInfinity, highest_other = -kInfinity, highest_left = -kInfinity;
  for (const ScoredGroup& group : all) {
    if (group.is_used || (taken < groups.chosen && group.highest_left <= limit)) {
      ++taken;
      lowest_taken = std::min(lowest_taken, group.score);
      highest_left = std::max(highest_left, group.highest_left);
    } else {
      highest_other = std::max(highest_other, group.score);
    }
  }
  if (taken != groups.chosen) return kInfinity;
  const double of_groups = (highest_other - lowest_taken) / (2 * static_cast<double>(groups.counted));
  return std::max({0.0, of_groups, (highest_left - lowest_chosen) / 2});
}

}  // namespace

double move_to_choose(std::span<const double> scores, const ExpertGroups& groups,
                      const std::set<std::int64_t>& experts) {
  double lowest_chosen = kInfinity;
  for (const std::int64_t expert : experts) {
    if (expert < 0 || expert >= static_cast<std::int64_t>(scores.size())) return kInfinity;
    lowest_chosen = std::min(lowest_chosen, scores[static_cast<std::size_t>(expert)]);
  }
  const std::size_t size = scores.size() / static_cast<std::size_t>(groups.count);
  std::vector<ScoredGroup> all;
  for (std::size_t first = 0; first < scores.size(); first += size) {
    all.push_back(make_group(scores.subspan(first, size), static_cast<std::int64_t>(first), groups, experts));
  }
  std::sort(all.begin(), all.end(), [](const ScoredGroup& a, const ScoredGroup& b) {
    return std::tie(a.is_used, a.score) > std::tie(b.is_used, b.score);
  });
  // A group may have been taken though none of its experts was chosen, and which one it was is not recorded. One of a
  // lower score takes a larger move to be taken, but perhaps a smaller one to keep its experts behind the chosen ones:
  // each limit on these is tried, and the least move counts.
  double least = kInfinity;
  for (const ScoredGroup& group : all) {
    least = std::min(least, move_within(all, groups, lowest_chosen, group.highest_left));
  }
  return least;
}

}  // namespace ttrace
