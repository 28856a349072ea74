#include "merge/elements.h"

#include <cstring>

#include "merge/region.h"
#include "merge/runs.h"
#include "merge/values.h"

namespace ttrace {

Elements::Elements(const LogicalTensor& tensor) : tensor_(held_rows_of(tensor)), is_copy_(tensor.scale == 1) {
  for (const Piece& piece : tensor_.pieces()) {
    if (piece.replica == 0 && (piece.term != 0 || piece.entry->dtype != tensor_.dtype)) is_copy_ = false;
  }
  dtype_ = is_copy_ ? tensor_.dtype : Dtype::kFloat64;
}

void Elements::copy_to(std::byte* out) const {
  if (!is_copy_) {
    const Values values = values_of(tensor_);
    if (!values.empty()) std::memcpy(out, values.data(), values.size() * sizeof(double));
    return;
  }
  const std::int64_t size = size_of(dtype_);
  const auto copy = [size](std::byte* to, const std::byte* from, std::int64_t count) {
    std::memcpy(to, from, static_cast<std::size_t>(count * size));
  };
  for (const Piece& piece : tensor_.pieces()) {
    if (piece.replica != 0) continue;
    for_each_run(piece, tensor_.shape,
                 [&](std::int64_t local, std::int64_t stride, std::int64_t position, std::int64_t length) {
                   std::byte* to = out + position * size;
                   const std::byte* from = piece.elements() + local * size;
                   if (stride == 1) return copy(to, from, length);
                   for (std::int64_t j = 0; j < length; ++j) copy(to + j * size, from + j * stride * size, 1);
                 });
  }
}

std::vector<std::byte> bytes_of(const LogicalTensor& tensor) {
  const Elements elements(tensor);
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements.bytes()));
  elements.copy_to(bytes.data());
  return bytes;
}

}  // namespace ttrace
