#include "sdc/mismatch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numeric/convert.h"

namespace ttrace {
namespace {

constexpr std::int64_t kBlock = 4096;  // elements; the bits and values of so many stay in the first-level cache

void add_square(double value, double& sum) {
  if (std::isfinite(value)) sum += value * value;
}

void add_element(double healthy, double suspect, Mismatch& result) {
  if (healthy == suspect) return;  // the two zeros: equal values of different bits
  if (std::isnan(healthy) && std::isnan(suspect)) return;
  const double difference = suspect - healthy;
  if (std::isfinite(difference)) {
    result.difference_square += difference * difference;
  } else {
    ++result.nonfinite;
  }
  const double relative = std::abs(difference / healthy);
  if (!std::isfinite(relative)) {
    ++result.unbounded;
  } else {
    result.relative_sum += relative;
    ++result.relative_count;
  }
}

}  // namespace

Mismatch mismatch_of(const std::byte* healthy, const std::byte* suspect, Dtype dtype, std::int64_t elements) {
  Mismatch result;
  result.elements = elements;
  const std::int64_t size = size_of(dtype);
  double a[kBlock], b[kBlock];
  for (std::int64_t start = 0; start < elements; start += kBlock) {
    const std::int64_t count = std::min(kBlock, elements - start);
    const std::byte* x = healthy + start * size;
    const std::byte* y = suspect + start * size;
    widen(x, dtype, count, a);
    for (std::int64_t i = 0; i < count; ++i) add_square(a[i], result.healthy_square);
    if (std::memcmp(x, y, static_cast<std::size_t>(count * size)) == 0) continue;
    widen(y, dtype, count, b);
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::memcmp(x + i * size, y + i * size, static_cast<std::size_t>(size)) == 0) continue;
      if (result.differing++ == 0) result.first = start + i;
      add_element(a[i], b[i], result);
    }
  }
  return result;
}

}  // namespace ttrace
