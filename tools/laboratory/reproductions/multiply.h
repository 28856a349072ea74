// Random operands and their product, as a BLAS computes it: sums in the accumulator's precision over blocks of K.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "abft/quantised_gemm.h"
#include "abft/verify.h"
#include "reproductions/mutable_matrix_view.h"
#include "reproductions/random.h"

namespace ttrace::reproductions {

enum class Distribution { kNearZeroMean, kMeanOne, kUniform, kTruncated, kUnit };
// N(1e-6, 1), N(1, 1), U(-1, 1), N(0, 1) within [-1, 1], U(0, 1)
std::string_view name_of(Distribution distribution);

struct Example {
  std::int64_t m = 0, k = 0, n = 0;
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::byte> a, b, c;

  abft::Product product() const;
};
Example random_example(std::int64_t m, std::int64_t k, std::int64_t n, Dtype dtype, Distribution distribution,
                       Random& random);

// C = A B, or A B + bias. fp64 accumulates in fp64, everything else in fp32; C is rounded once.
void multiply(const abft::MatrixView& a, const abft::MatrixView& b, const MutableMatrixView& c);
void multiply(const abft::Term& term, const std::optional<abft::MatrixView>& bias, const MutableMatrixView& c);

// C_temp [m, n + 1] of A [m, k] and B [k, n + 1], packed with its checksum column.
std::vector<std::int32_t> multiply(std::span<const std::uint8_t> a, std::span<const std::int8_t> packed,
                                   const abft::GemmShape& shape);

}  // namespace ttrace::reproductions
