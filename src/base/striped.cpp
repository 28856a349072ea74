// Striped attention (Brandon et al., "Striped attention: faster ring attention for causal transformers"): the
// tokens are dealt to the ranks one by one, so that each has the same share of the causal triangle. This file is an
// example of a layout function: from the sizes of all parts it says where each element of each part lies in the whole.
#include <fmt/format.h>

#include <numeric>

#include "base/layout.h"

namespace ttrace {

AxisLayout striped(const AxisParts& parts) {
  const auto n = static_cast<std::int64_t>(parts.sizes.size());
  AxisLayout layout;
  layout.extent = std::accumulate(parts.sizes.begin(), parts.sizes.end(), std::int64_t{0});
  for (std::int64_t c = 0; c < n; ++c) {
    const std::int64_t size = parts.sizes[static_cast<std::size_t>(c)];
    if (size != (layout.extent + n - 1 - c) / n) {
      throw LayoutError(
          fmt::format("parts of {} elements are no stripes; expected sizes that differ by one at most, "
                      "the larger first",
                      fmt::join(parts.sizes, ", ")));
    }
    std::vector<Stretch>& stretches = layout.parts.emplace_back();
    if (n == 1 && size > 0) stretches = {{0, 0, size}};
    for (std::int64_t i = 0; n > 1 && i < size; ++i) stretches.push_back({i, i * n + c, 1});
  }
  return layout;
}

}  // namespace ttrace
