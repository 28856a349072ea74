#include "align/describe.h"

#include <fmt/format.h>

#include <algorithm>

namespace ttrace {
namespace {

constexpr std::size_t kWords = 8;  // what still reads as one line

}  // namespace

std::string join(std::span<const std::string> words) {
  const std::string text = fmt::format("{}", fmt::join(words.first(std::min(words.size(), kWords)), ", "));
  return words.size() <= kWords ? text : fmt::format("{}, ... ({} in all)", text, words.size());
}

std::string describe_ranks(std::span<const std::int32_t> ranks) {
  std::vector<std::string> words;
  for (const std::int32_t rank : ranks) words.push_back(rank < 0 ? "unknown" : std::to_string(rank));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", join(words));
}

std::string describe(const Box& box) {
  std::vector<std::string> ranges;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", box.start[d], box.start[d] + box.size[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

}  // namespace ttrace
