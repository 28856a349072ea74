#include "reproductions/multiply.h"

#include <algorithm>
#include <cmath>

#include "numeric/convert.h"

namespace ttrace::reproductions {
namespace {

constexpr std::int64_t kBlockK = 256, kBlockN = 1024;

double draw(Distribution distribution, Random& random) {
  double value = 0;
  switch (distribution) {
    case Distribution::kNearZeroMean:
      return 1e-6 + random.normal();
    case Distribution::kMeanOne:
      return 1 + random.normal();
    case Distribution::kUniform:
      return random.uniform(-1, 1);
    case Distribution::kUnit:
      return random.uniform();
    case Distribution::kTruncated:
      do {
        value = random.normal();
      } while (std::fabs(value) > 1);
  }
  return value;
}

std::vector<std::byte> random_matrix(std::int64_t elements, Dtype dtype, Distribution distribution, Random& random) {
  std::vector<double> values(static_cast<std::size_t>(elements));
  for (double& value : values) value = draw(distribution, random);
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements * size_of(dtype)));
  narrow(values.data(), dtype, elements, bytes.data());
  return bytes;
}

template <class T>
std::vector<T> values_of(const abft::MatrixView& matrix) {
  std::vector<double> wide(static_cast<std::size_t>(matrix.rows * matrix.cols));
  abft::read(matrix, 0, matrix.rows, 0, matrix.cols, wide.data());
  return std::vector<T>(wide.begin(), wide.end());
}

template <class T>
void multiply_in(const abft::Term& term, const std::optional<abft::MatrixView>& bias, const MutableMatrixView& c) {
  const auto& [a, b] = term;
  const std::int64_t m = a.rows, k = a.cols, n = b.cols;
  const std::vector<T> left = values_of<T>(a), right = values_of<T>(b);
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < m; ++row) {
    std::vector<T> sums(static_cast<std::size_t>(n)), block(kBlockN);
    for (std::int64_t k0 = 0; k0 < k; k0 += kBlockK) {
      for (std::int64_t n0 = 0; n0 < n; n0 += kBlockN) {
        const std::int64_t cols = std::min(kBlockN, n - n0);
        std::fill(block.begin(), block.end(), T{0});
        for (std::int64_t i = k0; i < std::min(k0 + kBlockK, k); ++i) {
          const T factor = left[static_cast<std::size_t>(row * k + i)];
          const T* const values = right.data() + i * n + n0;
          for (std::int64_t col = 0; col < cols; ++col) block[static_cast<std::size_t>(col)] += factor * values[col];
        }
        for (std::int64_t col = 0; col < cols; ++col)
          sums[static_cast<std::size_t>(n0 + col)] += block[static_cast<std::size_t>(col)];
      }
    }
    for (std::int64_t col = 0; col < n; ++col) {
      T sum = sums[static_cast<std::size_t>(col)];
      if (bias) sum += static_cast<T>(abft::element(*bias, row, col));
      const double wide = static_cast<double>(sum);
      narrow(&wide, c.layout.dtype, 1, c.at(row, col));
    }
  }
}

}  // namespace

std::string_view name_of(Distribution distribution) {
  constexpr std::string_view kNames[] = {"N(1e-6,1)", "N(1,1)", "U(-1,1)", "truncated N", "U(0,1)"};
  return kNames[static_cast<std::size_t>(distribution)];
}

abft::Product Example::product() const {
  return {{{abft::row_major(a.data(), dtype, m, k), abft::row_major(b.data(), dtype, k, n)}},
          abft::row_major(c.data(), dtype, m, n)};
}

Example random_example(std::int64_t m, std::int64_t k, std::int64_t n, Dtype dtype, Distribution distribution,
                       Random& random) {
  Example example{m,
                  k,
                  n,
                  dtype,
                  random_matrix(m * k, dtype, distribution, random),
                  random_matrix(k * n, dtype, distribution, random),
                  std::vector<std::byte>(static_cast<std::size_t>(m * n * size_of(dtype)))};
  const abft::Term term = example.product().terms[0];
  multiply(term.a, term.b, mutable_row_major(example.c.data(), dtype, m, n));
  return example;
}

void multiply(const abft::MatrixView& a, const abft::MatrixView& b, const MutableMatrixView& c) {
  multiply({a, b}, {}, c);
}

void multiply(const abft::Term& term, const std::optional<abft::MatrixView>& bias, const MutableMatrixView& c) {
  if (term.a.dtype == Dtype::kFloat64) {
    multiply_in<double>(term, bias, c);
  } else {
    multiply_in<float>(term, bias, c);
  }
}

std::vector<std::int32_t> multiply(std::span<const std::uint8_t> a, std::span<const std::int8_t> packed,
                                   const abft::GemmShape& shape) {
  const std::int64_t cols = shape.n + 1;
  std::vector<std::int32_t> c(static_cast<std::size_t>(shape.m * cols));
#pragma omp parallel for schedule(static) if (shape.m * shape.n * shape.k > 100000)
  for (std::int64_t row = 0; row < shape.m; ++row) {
    std::int32_t* const out = c.data() + row * cols;
    for (std::int64_t i = 0; i < shape.k; ++i) {
      const std::int32_t factor = a[static_cast<std::size_t>(row * shape.k + i)];
      const std::int8_t* const values = packed.data() + i * cols;
      for (std::int64_t col = 0; col < cols; ++col) out[col] += factor * values[col];
    }
  }
  return c;
}

}  // namespace ttrace::reproductions
