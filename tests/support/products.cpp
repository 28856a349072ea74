#include "support/products.h"

#include <algorithm>
#include <cmath>

#include "numeric/convert.h"
#include "reproductions/multiply.h"

namespace ttrace::abft {

double draw(Distribution distribution, Random& random) {
  switch (distribution) {
    case Distribution::kNearZeroMean:
      return 1e-6 + random.normal();
    case Distribution::kMeanOne:
      return 1 + random.normal();
    case Distribution::kUniform:
      return random.uniform(-1, 1);
    case Distribution::kTruncated:
      return std::clamp(random.normal(), -1.0, 1.0);
    case Distribution::kSparse:
      return random.uniform() < 0.9 ? 0 : random.normal();
    case Distribution::kHeavyTailed:
      return std::exp(2 * random.normal()) * (random.uniform() < 0.5 ? -1 : 1);
  }
  return 0;
}

Matrix zeros(Dtype dtype, std::int64_t rows, std::int64_t cols, Layout layout) {
  Matrix matrix;
  matrix.view = {nullptr, dtype, rows, cols, cols, 1};
  if (layout == Layout::kTransposed) matrix.view.row_stride = 1, matrix.view.col_stride = rows;
  if (layout == Layout::kStrided) matrix.view.row_stride = 2 * cols + 3, matrix.view.col_stride = 2;
  const std::int64_t elements = layout == Layout::kStrided ? rows * (2 * cols + 3) : rows * cols;
  matrix.bytes.resize(static_cast<std::size_t>(std::max<std::int64_t>(elements, 1) * size_of(dtype)));
  matrix.view.data = matrix.bytes.data();
  return matrix;
}

void set(Matrix& matrix, std::int64_t row, std::int64_t col, double value) {
  narrow(&value, matrix.view.dtype, 1, matrix.writable().at(row, col));
}

void fill(Matrix& matrix, Distribution distribution, double scale, Random& random) {
  for (std::int64_t r = 0; r < matrix.view.rows; ++r) {
    for (std::int64_t c = 0; c < matrix.view.cols; ++c) {
      const double value = scale * draw(distribution, random);
      set(matrix, r, c, size_of(matrix.view.dtype) == 1 ? std::clamp(value, -16.0, 16.0) : value);
    }
  }
}

Product RandomProduct::product() const {
  Product result{{{a.view, b.view}}, c.view, {}};
  if (has_bias) result.bias = bias.view;
  return result;
}

void multiply(RandomProduct& product) {
  const Product views = product.product();
  reproductions::multiply(views.terms[0], views.bias, product.c.writable());
}

void correct(RandomProduct& product, const Verification& verification) {
  for (const Fault& fault : verification.faults) {
    if (fault.located()) set(product.c, fault.row, fault.col, fault.corrected);
  }
}

RandomProduct random_product(Shape3 shape, Dtype operand, Dtype output, Distribution distribution, Random& random) {
  const auto layout = [&] { return static_cast<Layout>(random.below(3)); };
  const double scale = operand == Dtype::kFloat64 || operand == Dtype::kFloat32 || operand == Dtype::kBFloat16
                           ? std::exp2(static_cast<double>(random.below(31) - 20))
                           : 1;
  RandomProduct product{zeros(operand, shape.m, shape.k, layout()), zeros(operand, shape.k, shape.n, layout()),
                        zeros(output, shape.m, shape.n, layout()), zeros(output, 1, shape.n)};
  fill(product.a, distribution, scale, random);
  fill(product.b, distribution, 1, random);
  product.has_bias = random.below(3) == 0;
  fill(product.bias, distribution, scale, random);
  product.bias.view.rows = shape.m;
  product.bias.view.row_stride = 0;
  multiply(product);
  return product;
}

}  // namespace ttrace::abft
