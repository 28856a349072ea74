// A choice among groups of experts: a router takes the groups of the highest scores first, and of their experts those
// of the highest scores. A group's score is the sum of its experts' highest few: of top_k / chosen in Megatron-core
// (https://github.com/NVIDIA/Megatron-LM, group_limited_topk), of two in DeepSeek-V3 (arXiv:2412.19437, section 2.1.2),
// of one in DeepSeek-V2 (arXiv:2405.04434, section 2.2.2).
#pragma once

#include <cstdint>
#include <set>
#include <span>

namespace ttrace {

struct ExpertGroups {
  std::int64_t count = 1;    // equal parts of the experts, in their order
  std::int64_t chosen = 1;   // how many of them a token's experts come from
  std::int64_t counted = 1;  // how many of a group's experts add up to its score
};

// Returns how far each of the scores, one for each expert, must move at least before the router chooses `experts`: 0
// where it does so, infinity where no move makes it. Each pair of groups and each pair of experts is looked at by itself,
// so that all of them together may take a larger move. The number of scores is a multiple of `groups.count`.
double move_to_choose(std::span<const double> scores, const ExpertGroups& groups,
                      const std::set<std::int64_t>& experts);

}  // namespace ttrace
