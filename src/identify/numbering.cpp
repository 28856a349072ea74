#include "identify/numbering.h"

#include <algorithm>
#include <numeric>

#include "base/tensor_name.h"

namespace ttrace {

std::optional<std::string> renumbered(const Numbering& numbering, std::string_view name, std::int64_t part) {
  if (numbering.layers.empty()) return std::nullopt;
  const auto number = layer_number(name, numbering.layers);
  if (!number) return std::nullopt;
  const std::vector<std::int64_t>& starts = numbering.starts.find(number->prefix)->second;
  return with_number(name, *number, starts[static_cast<std::size_t>(part)] + number->value);
}

std::int64_t sum_of_parts(std::vector<std::int64_t> counts, const std::vector<bool>& present) {
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  for (std::size_t part = 0; part < counts.size(); ++part) {
    if (!present[part]) counts[part] = most;
  }
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> starts(counts.size(), 0);
  std::partial_sum(counts.begin(), counts.end() - 1, starts.begin() + 1);
  return starts;
}

}  // namespace ttrace
