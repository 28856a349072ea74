#include "abft/quantised_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace::abft {
namespace {

// The largest product of two elements is 255 times -128.
constexpr std::int64_t kLargestK = std::numeric_limits<std::int32_t>::max() / (255 * 128);

std::size_t at(std::int64_t row, std::int64_t col, std::int64_t cols) {
  return static_cast<std::size_t>(row * cols + col);
}

}  // namespace

std::string problem_of(const GemmShape& shape, std::int64_t a, std::int64_t b, std::int64_t c) {
  const auto [m, n, k] = shape;
  if (m <= 0 || n <= 0 || k < 0) return fmt::format("a product [{}, {}] x [{}, {}] has no elements", m, k, k, n);
  if (k > kLargestK) return fmt::format("K is {}: int32 may overflow beyond {}", k, kLargestK);
  if (a != m * k) return fmt::format("A has {} elements, not {} x {}", a, m, k);
  if (b != k * (n + 1)) return fmt::format("the packed B has {} elements, not {} x ({} + 1)", b, k, n);
  if (c != m * (n + 1)) return fmt::format("C has {} elements, not {} x ({} + 1)", c, m, n);
  return {};
}

std::vector<std::int8_t> pack_with_checksum(std::span<const std::int8_t> b, std::int64_t k, std::int64_t n) {
  std::vector<std::int8_t> packed;
  packed.reserve(static_cast<std::size_t>(k * (n + 1)));
  for (std::int64_t row = 0; row < k; ++row) {
    const auto values = b.subspan(at(row, 0, n), static_cast<std::size_t>(n));
    std::int64_t sum = 0;
    for (const std::int8_t value : values) sum += value;
    packed.insert(packed.end(), values.begin(), values.end());
    packed.push_back(static_cast<std::int8_t>(sum % kModulus));
  }
  return packed;
}

std::vector<std::int64_t> corrupted_rows(std::span<const std::int32_t> c, std::int64_t m, std::int64_t n) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < m; ++row) {
    std::int64_t sum = 0;
    for (std::int64_t col = 0; col < n; ++col) sum += c[at(row, col, n + 1)];
    if ((sum - c[at(row, n, n + 1)]) % kModulus != 0) rows.push_back(row);
  }
  return rows;
}

}  // namespace ttrace::abft
