#include "align/describe.h"

#include <fmt/format.h>

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::size_t kMaxListed = 8;  // so that a list still reads as one line

}  // namespace

std::string comma_list(std::span<const std::string> items) {
  const std::string text = fmt::format("{}", fmt::join(items.first(std::min(items.size(), kMaxListed)), ", "));
  return items.size() <= kMaxListed ? text : fmt::format("{}, ... ({} in all)", text, items.size());
}

std::string describe_ranks(std::span<const std::int32_t> ranks) {
  std::vector<std::string> words;
  for (const std::int32_t rank : ranks) words.push_back(rank < 0 ? "unknown" : std::to_string(rank));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", comma_list(words));
}

std::string describe(const Box& box) {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", box.start[d], box.start[d] + box.size[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

}  // namespace ttrace
