#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compare/compare.h"
#include "compare/kernel.h"
#include "numeric/convert.h"

namespace ttrace {

TensorStatistics statistics_of(const std::byte* data, Dtype dtype, std::int64_t elements) {
  TensorStatistics statistics;
  LaneSums::Lanes sums{}, squares{};
  std::array<double, kBlockElements> block;
  double smallest = std::numeric_limits<double>::infinity(), largest = -smallest;
  for (std::int64_t done = 0; done < elements; done += kBlockElements) {
    const std::int64_t count = std::min(kBlockElements, elements - done);
    widen(data + done * size_of(dtype), dtype, count, block.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const double value = block[i];
      statistics.nan += std::isnan(value);
      statistics.inf += std::isinf(value);
      statistics.zero += value == 0;
      if (!std::isfinite(value)) continue;
      sums[i % kLanes] += value;
      squares[i % kLanes] += value * value;
      smallest = std::min(smallest, value);
      largest = std::max(largest, value);
    }
  }
  const std::int64_t finite = elements - statistics.nan - statistics.inf;
  if (finite == 0) return statistics;
  statistics.norm = std::sqrt(total_of(squares));
  statistics.min = smallest;
  statistics.max = largest;
  statistics.mean = total_of(sums) / static_cast<double>(finite);
  return statistics;
}

}  // namespace ttrace
