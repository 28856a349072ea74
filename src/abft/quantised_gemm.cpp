#include "ttrace/abft/quantised_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace::abft {
namespace {

// A's elements end at 255, those of B and the checksums at -128.
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

std::vector<std::int32_t> multiply(std::span<const std::uint8_t> a, std::span<const std::int8_t> packed,
                                   const GemmShape& shape) {
  const std::int64_t cols = shape.n + 1;
  std::vector<std::int32_t> c(static_cast<std::size_t>(shape.m * cols));
#pragma omp parallel for schedule(static) if (shape.m * shape.n * shape.k > 100000)
  for (std::int64_t row = 0; row < shape.m; ++row) {
    std::int32_t* const out = c.data() + row * cols;
    for (std::int64_t i = 0; i < shape.k; ++i) {
      const std::int32_t factor = a[at(row, i, shape.k)];
      const std::int8_t* const values = packed.data() + i * cols;
      for (std::int64_t col = 0; col < cols; ++col) out[col] += factor * values[col];
    }
  }
  return c;
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

std::vector<std::uint8_t> requantise(std::span<const std::int32_t> c, std::span<const std::uint8_t> a,
                                     std::span<const std::int8_t> packed, const GemmShape& shape,
                                     const Quantisation& of_a, const Quantisation& of_b, const Quantisation& of_c) {
  std::vector<double> row_sums(static_cast<std::size_t>(shape.m)), col_sums(static_cast<std::size_t>(shape.n));
  for (std::size_t i = 0; i < a.size(); ++i) row_sums[i / static_cast<std::size_t>(shape.k)] += a[i];
  for (std::int64_t i = 0; i < shape.k; ++i) {
    for (std::int64_t col = 0; col < shape.n; ++col) {
      col_sums[static_cast<std::size_t>(col)] += packed[at(i, col, shape.n + 1)];
    }
  }
  const double both = static_cast<double>(of_a.scale) * of_b.scale;
  const double a_by_bias = static_cast<double>(of_a.scale) * of_b.bias;
  const double b_by_bias = static_cast<double>(of_b.scale) * of_a.bias;
  const double biases = static_cast<double>(shape.k) * of_a.bias * of_b.bias;
  std::vector<std::uint8_t> result;
  for (std::int64_t row = 0; row < shape.m; ++row) {
    for (std::int64_t col = 0; col < shape.n; ++col) {
      const double value = both * c[at(row, col, shape.n + 1)] + a_by_bias * row_sums[static_cast<std::size_t>(row)] +
                           b_by_bias * col_sums[static_cast<std::size_t>(col)] + biases;
      const double quantised = std::nearbyint((value - of_c.bias) / of_c.scale);
      result.push_back(static_cast<std::uint8_t>(std::clamp(quantised, 0.0, 255.0)));
    }
  }
  return result;
}

}  // namespace ttrace::abft
