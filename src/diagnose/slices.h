// Compares slices of tensors along one dimension.
#pragma once

#include "merge/values.h"

namespace ttrace {

// The index of a row-major tensor, split into [outer, extent, inner] around the dimension `dim`.
struct Slices {
  std::int64_t outer = 1, extent = 1, inner = 1;

  Slices(const Shape& shape, std::size_t dim) : extent(shape[dim]) {
    for (std::size_t d = 0; d < dim; ++d) outer *= shape[d];
    for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  }
  // Returns ||block `a` of `x` - block `b` of `y`||^2. Block k is the indices [k * size, (k + 1) * size) of the
  // dimension.
  double square_between(const Values& x, std::int64_t a, const Values& y, std::int64_t b, std::int64_t size) const {
    double sum = 0;
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::int64_t from = (o * extent + a * size) * inner, other = (o * extent + b * size) * inner;
      for (std::int64_t i = 0; i < size * inner; ++i) {
        const double difference = x[static_cast<std::size_t>(from + i)] - y[static_cast<std::size_t>(other + i)];
        sum += difference * difference;
      }
    }
    return sum;
  }
};

}  // namespace ttrace
