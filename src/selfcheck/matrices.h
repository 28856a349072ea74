// Logical tensors as matrices.
#pragma once

#include <memory>
#include <vector>

#include "ttrace/abft/matrix_view.h"
#include "ttrace/align/shard_mapping.h"

namespace ttrace {

// All dimensions but the last are rows. In place where the tensor lies in one piece; else a copy in fp64.
struct Matrix {
  abft::MatrixView view;
  Dtype stored = Dtype::kFloat32;  // what the ranks hold it in
  std::shared_ptr<const std::vector<double>> copy = nullptr;
};
Matrix matrix_of(const LogicalTensor& tensor);

}  // namespace ttrace
