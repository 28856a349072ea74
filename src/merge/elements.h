// The elements of a logical tensor as programs take them: in the dtype that they were recorded in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/alignment.h"

namespace ttrace {

// The elements have the recorded bits. Where a tensor is a sum of terms, has shards of several dtypes or was recorded
// with a scale, they are computed, and float64. Nothing is copied before it is asked for.
class Elements {
 public:
  // Takes, of a tensor with `rows`, the rows that it holds (`held_rows_of`).
  explicit Elements(const LogicalTensor& tensor);

  const Shape& shape() const { return tensor_.shape; }
  Dtype dtype() const { return dtype_; }
  std::int64_t bytes() const { return element_count(tensor_.shape) * size_of(dtype_); }

  // Writes all elements, row-major, to `out`, which has room for `bytes()`.
  void copy_to(std::byte* out) const;

 private:
  LogicalTensor tensor_;
  bool is_copy_ = true;
  Dtype dtype_ = Dtype::kFloat32;
};

// All elements of the tensor, row-major.
std::vector<std::byte> bytes_of(const LogicalTensor& tensor);

}  // namespace ttrace
