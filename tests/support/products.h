// Random matrix products, computed as hardware does: narrow operands accumulate in fp32, and C is rounded once.
#pragma once

#include <cstddef>
#include <vector>

#include "abft/verify.h"
#include "reproductions/mutable_matrix_view.h"
#include "reproductions/random.h"

namespace ttrace::abft {

using reproductions::Random;

enum class Distribution { kNearZeroMean, kMeanOne, kUniform, kTruncated, kSparse, kHeavyTailed };
constexpr Distribution kDistributions[] = {Distribution::kNearZeroMean, Distribution::kMeanOne,
                                           Distribution::kUniform,      Distribution::kTruncated,
                                           Distribution::kSparse,       Distribution::kHeavyTailed};
double draw(Distribution distribution, Random& random);

// Rows x cols elements of `dtype`, in a layout of its own.
struct Matrix {
  std::vector<std::byte> bytes;
  MatrixView view;

  reproductions::MutableMatrixView writable() { return {bytes.data(), view}; }
};
enum class Layout { kRowMajor, kTransposed, kStrided };
Matrix zeros(Dtype dtype, std::int64_t rows, std::int64_t cols, Layout layout = Layout::kRowMajor);
void set(Matrix& matrix, std::int64_t row, std::int64_t col, double value);  // rounds
void fill(Matrix& matrix, Distribution distribution, double scale, Random& random);

struct Shape3 {
  std::int64_t m, k, n;
};
struct RandomProduct {
  Matrix a, b, c, bias;
  bool has_bias = false;

  Product product() const;
};
// Fills `c` (reproductions/multiply.h).
void multiply(RandomProduct& product);
// Writes the corrected values of located faults into C.
void correct(RandomProduct& product, const Verification& verification);
RandomProduct random_product(Shape3 shape, Dtype operand, Dtype output, Distribution distribution, Random& random);

}  // namespace ttrace::abft
