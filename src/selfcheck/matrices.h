// Logical tensors as matrices.
#pragma once

#include <memory>
#include <vector>

#include "abft/matrix_view.h"
#include "base/alignment.h"

namespace ttrace {

// A logical tensor as a matrix: all dimensions but the last count as rows. `view` is in the trace itself where the
// tensor lies there in one piece; else it is of `copy`, in fp64.
struct Matrix {
  abft::MatrixView view;
  Dtype stored = Dtype::kFloat32;  // the tensor's own dtype
  std::shared_ptr<const std::vector<double>> copy = nullptr;
};
Matrix matrix_of(const LogicalTensor& tensor);

}  // namespace ttrace
